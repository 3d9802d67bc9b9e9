"""The command ``pcshrink``, and ``python -m pcshrink``."""

import os


def main() -> None:
    """Listen for signals before anything slow is imported, then run the command line."""
    from pcshrink.common.stop import end_on_signals

    end_on_signals()
    # When a connection breaks, torch's own libraries print pages; the error that they raise is enough.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from pcshrink.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
