"""Keep freed memory for the next step instead of giving it back to the system after each."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's mallopt
_LARGEST = 2**31 - 1
_SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Ask the C library to reuse large blocks.

    By default glibc takes every large tensor fresh from the system and gives it back when it is freed, so that each
    step of a training touches all its pages for the first time again. Nothing is changed where the user has set how
    memory is to be handled, or where the C library is another one.

    Returns:
        Whether it does so now.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SET_BY_USER):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _LARGEST))
