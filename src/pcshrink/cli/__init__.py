"""The command line ``pcshrink``."""
