"""Before anything imports torch, the order of the tests, and what several files need."""

import gc
import os
from collections.abc import Iterator

import pytest

# Some virtual machines announce AMX but cannot run it, and any bfloat16 product ends the process there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Several test processes with several threads each would spend their time waiting for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, then those that train, so that no worker is left alone with a long one at the end.

    The tests of a file stay together: they may share what one of them has made.
    """
    marked = {mark: {item.path for item in items if item.get_closest_marker(mark)} for mark in ("slow", "train")}
    items.sort(key=lambda item: (item.path not in marked["slow"], item.path not in marked["train"]))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread for torch, so that two runs of the same thing give the same bits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests and all of torch live until the end: let the collector pass over them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
