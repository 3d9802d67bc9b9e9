"""``python -m pcshrink`` is the command ``pcshrink``."""

from pcshrink.cli.main import main

main()
