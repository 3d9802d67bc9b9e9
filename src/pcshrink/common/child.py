"""This very command line, and code, in other processes."""

from __future__ import annotations

import socket
import sys

_RUN = "import runpy; runpy.run_module('pcshrink', run_name='__main__', alter_sys=True)"


def own_command() -> list[str]:
    """The words that start pcshrink with this interpreter; the working directory is not searched for modules."""
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", "pcshrink"]
    return python_command(_RUN)


def python_command(code: str) -> list[str]:
    """The words that run Python code with this interpreter, which would search the working directory first.

    Python 3.10 cannot be told to leave that out (``-P``), so the code itself does, before it imports anything.
    """
    return [sys.executable, "-c", f"import sys; sys.path[:] = filter(None, sys.path)\n{code}"]


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
