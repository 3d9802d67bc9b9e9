"""Freed memory is used again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pcshrink.common.allocator import _SET_BY_USER

PROGRAM = """
import resource, sys
import numpy as np
from pcshrink.common.allocator import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
for turn in range(21):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(4_000_000)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(way: str, **variables: str) -> tuple[str, int]:
    environment = {k: v for k, v in os.environ.items() if k not in _SET_BY_USER} | variables
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way], env=environment, capture_output=True, text=True, check=True
    )
    kept, count = done.stdout.split()
    return kept, int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_pages_are_touched_for_the_first_time_once() -> None:
    kept, few = faults("keep")
    if kept == "False":
        pytest.skip("this C library has no mallopt")
    assert few < faults("leave")[1] / 5


def test_what_the_user_has_set_stays() -> None:
    assert faults("keep", MALLOC_TRIM_THRESHOLD_="100000")[0] == "False"
