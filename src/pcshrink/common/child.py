"""This very command line in other processes."""

from __future__ import annotations

import socket
import sys


def own_command() -> list[str]:
    """The words that start pcshrink with this interpreter; the working directory is not searched for modules."""
    no_working_directory = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *no_working_directory, "-m", "pcshrink"]


def end_with_parent() -> None:
    """In a child before it runs: be told to stop when the parent dies, even of a signal that it cannot pass on."""
    if sys.platform == "linux":
        import ctypes
        import signal

        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)


def free_port() -> int:
    """A port of this machine that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
