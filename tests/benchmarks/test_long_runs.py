"""The zoo and the fuzzer: one network can hold nothing up, and a run that was stopped goes on."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from benchmarks import fuzz
from benchmarks.fuzz import Tally, keep, read
from testing.random_nets import Outcome

pytest.importorskip("torch_pruning")
from benchmarks.zoo import page
from benchmarks.zoo.apart import Ended, apart
from benchmarks.zoo.row import Kept, Row


def _spin() -> None:
    while True:
        pass


def test_a_process_of_its_own_gives_its_answer() -> None:
    assert apart(lambda: {"pid": os.getpid()}, seconds=60)["pid"] != os.getpid()


def test_a_process_that_dies_is_an_outcome() -> None:
    with pytest.raises(Ended, match="process ended: 3"):
        apart(lambda: os._exit(3), seconds=60)


def test_a_process_that_takes_too_long_is_an_outcome() -> None:
    with pytest.raises(Ended, match="no answer"):
        apart(_spin, seconds=1)


def test_two_runs_keep_their_rows_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    one, other = Kept(path), Kept(path)
    one.put(Row("a", "small", "8 x 8", outcome="exact", madds_share=0.5, peer="works"))
    other.put(Row("b", "small", "8 x 8", outcome="refused", peer="wrong (0.2)"))
    assert [row.name for row in Kept(path).rows.values()] == ["a", "b"]


def test_rows_of_other_versions_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    Kept(path).put(Row("a", "small", "8 x 8"))
    path.write_text(path.read_text().replace('"torch": "', '"torch": "0.'))
    assert not Kept(path).rows


def test_the_page_counts_every_outcome() -> None:
    outcomes = ("exact", "exact", "refused", "failed")
    peers = ("works", "wrong (0.2)", "crashes (IndexError)", "")
    rows = [Row(str(i), "f", "", outcome=o, peer=p) for i, (o, p) in enumerate(zip(outcomes, peers, strict=True))]
    told = page.summary(rows)
    assert "4 architectures: 2 exact, 1 refused, 1 failed." in told
    assert "Torch-Pruning on 3 of them: works 1, wrong 1, crashes 1, removes nothing 0, no answer 0." in told


def test_a_fuzz_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, tally = tmp_path / "fuzz.json", Tally(seed=4)
    tally.add(0, Outcome("equal", groups=3), 0.5)
    tally.add(1, Outcome("failed", "differs"), 0.5)
    keep(path, tally)
    again = read(path, seed=4)
    assert (again.done, again.groups, again.failed) == (2, 3, [1])
    assert "2 networks, seed 4, 1 s: 1 equal (3 groups), 0 refused, 0 refused only when cutting, 1 failed" in str(again)
    assert read(path, seed=5).done == 0


def test_a_network_that_never_answers_is_a_failure_whatever_catches_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def catch_all(net: object, number: int) -> Outcome:
        with contextlib.suppress(Exception):
            _spin()
        return Outcome("equal")

    monkeypatch.setattr(fuzz, "PATIENCE_S", 0.05)
    monkeypatch.setattr(fuzz, "check", catch_all)
    outcome = fuzz.attempt(fuzz.network(0, 0), 0)
    assert outcome.kind == "failed"
    assert "no answer after 0.05 s" in outcome.detail
