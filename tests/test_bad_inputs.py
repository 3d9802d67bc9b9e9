"""Several hundred mistakes, each a clear error: no traceback, and nothing that passes without a word.

`python -m benchmarks.bad_inputs` tries the same list and counts.
"""

from __future__ import annotations

import pytest
import torch

from benchmarks.bad_inputs import every_case
from testing.bad_inputs.case import Case, judge
from testing.bad_inputs.place import Place

pytest.importorskip("torchvision")

CASES = every_case()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    torch.set_num_threads(1)
    return Place(tmp_path_factory.mktemp("bad"))


def test_there_are_many() -> None:
    assert len(CASES) >= 300
    assert len({(case.area, case.name) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.area}: {case.name}")
def test_a_mistake_is_a_clear_error(case: Case, place: Place) -> None:
    outcome = judge(case, place)
    assert outcome.kind == "clear", outcome.said
