"""``python -m pcshrink`` is the command ``pcshrink``."""

from pcshrink.cli import main

main()
