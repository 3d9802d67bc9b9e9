"""Teaching: losses against loops, and a teacher's scores that are kept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pcshrink.data import DataConfig, load_dataset
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.train.notes import Notes, check_repeating
from pcshrink.train.objective import imitation
from pcshrink.train.recipe.schema import DistillSection
from pcshrink.train.run import train
from testing.training import CopyAt, model_bytes, tiny, train_with_stops

SCORES = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TAUGHT = 3 * torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = torch.tensor([0, 3, 2, 1, 3])


def chances(scores: list[float]) -> list[float]:
    return [math.exp(s) / sum(map(math.exp, scores)) for s in scores]


def divergence(wanted: list[float], given: list[float]) -> float:
    return sum(w * math.log(w / g) for w, g in zip(wanted, given, strict=True))


def by_loops(scores: Tensor, taught: Tensor, heat: float, label_weight: float, others_weight: float) -> float:
    total = 0.0
    for student, teacher, label in zip(scores.tolist(), taught.tolist(), LABELS.tolist(), strict=True):
        p, q = (chances([s / heat for s in row]) for row in (teacher, student))
        hit = divergence([p[label], 1 - p[label]], [q[label], 1 - q[label]])
        rest = [[x / (1 - row[label]) for c, x in enumerate(row) if c != label] for row in (p, q)]
        total += label_weight * hit + others_weight * divergence(*rest)
    return total / len(scores) * heat**2


def test_the_loss_taken_apart_is_what_loops_give() -> None:
    section = DistillSection(loss="dkd", temperature=3.0, label_weight=0.7, others_weight=2.0)
    found = imitation(section, SCORES, TAUGHT, LABELS)
    assert float(found) == pytest.approx(by_loops(SCORES, TAUGHT, 3.0, 0.7, 2.0))


def test_taken_apart_and_put_together_again_is_the_ordinary_loss() -> None:
    """KL = KL of the label's class + (1 - p of the label) KL of the others."""
    soft = imitation(DistillSection(loss="soft", temperature=2.0), SCORES, TAUGHT, LABELS)
    together = 0.0
    for index in range(len(SCORES)):
        one = slice(index, index + 1)
        p = float((TAUGHT[index] / 2).softmax(0)[LABELS[index]])
        section = DistillSection(loss="dkd", temperature=2.0, label_weight=1.0, others_weight=1 - p)
        together += float(imitation(section, SCORES[one], TAUGHT[one], LABELS[one])) / len(SCORES)
    assert float(soft) == pytest.approx(together)


@pytest.mark.parametrize("loss", ["soft", "dkd"])
def test_standardized_scores_teach_their_pattern_alone(loss: Any) -> None:
    section = DistillSection(loss=loss, standardize=True)
    assert float(imitation(section, 5 * TAUGHT + 2, TAUGHT, LABELS)) == pytest.approx(0, abs=1e-9)
    assert float(imitation(DistillSection(loss=loss), 5 * TAUGHT + 2, TAUGHT, LABELS)) > 0.1


def digits(views: int) -> Any:
    return load_dataset("digits", config=DataConfig(batch_size=64, views=views)).train


def test_views_come_again_in_turn() -> None:
    source = digits(2)

    def shown(epoch: int) -> dict[int, Tensor]:
        pairs = zip(range(len(source)), source.batches(epoch), strict=True)
        return {
            int(s): x for batch, (images, _) in pairs for s, x in zip(source.samples(epoch, batch), images, strict=True)
        }

    first, second, third = shown(0), shown(1), shown(2)
    both = set(first) & set(third)
    assert len(both) > 1000
    assert all(torch.equal(first[s], third[s]) for s in both)
    assert sum(torch.equal(first[s], second[s]) for s in set(first) & set(second)) < len(first) / 2
    assert source.samples(0, 0).tolist() != source.samples(2, 0).tolist()


def test_a_teacher_is_asked_once_for_each_view(tmp_path: Path) -> None:
    source, asked = digits(2), 0
    notes = Notes(tmp_path, source, 3, 0)

    def ask() -> Tensor:
        nonlocal asked
        asked += 1
        return torch.randn(64, 3)

    for epoch in range(2):
        said = [notes.scores(epoch, batch, ask) for batch in range(len(source))]
    assert asked == 2 * len(source)
    again = Notes(tmp_path, source, 3, 0)  # as after a stop
    for batch in range(len(source)):
        assert torch.equal(again.scores(1, batch, ask), said[batch])
    assert asked == 2 * len(source)
    again.discard()
    assert not list(tmp_path.iterdir())


def test_notes_of_other_data_are_refused(tmp_path: Path) -> None:
    Notes(tmp_path, digits(2), 3, 0)
    with pytest.raises(CheckpointError, match="the teacher is asked again"):
        Notes(tmp_path, digits(3), 3, 0)


def test_data_that_draw_every_view_anew_are_refused() -> None:
    with pytest.raises(ConfigError, match="draws every view anew"):
        check_repeating(digits(0))
    with pytest.raises(ConfigError, match="draws every view anew"):
        check_repeating(object())


@pytest.mark.parametrize(
    ("distill", "train", "message"),
    [
        ({"loss": "mse", "standardize": True}, {}, "standardize has no effect on loss: mse"),
        ({"cache": 2}, {"mixup": 0.2}, r"distill\.cache keeps scores of single images"),
        ({"loss": "dkd"}, {"mixup": 0.2}, "dkd needs one label for each image"),
        ({"cache": -1}, {}, "cache"),
    ],
)
def test_what_does_not_go_together(distill: Any, train: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny(distill={"teacher": "dense"} | distill, train=train)


@pytest.mark.train
def test_a_run_with_kept_scores_resumes_bit_by_bit(tmp_path: Path) -> None:
    distill = {"teacher": "dense", "loss": "dkd", "standardize": True, "cache": 2}
    recipe = tiny(distill=distill, epochs={"dense": 1, "warmup": 0, "shrink": 2, "settle": 2})
    train(recipe, tmp_path / "whole", quiet=True, callbacks=[CopyAt(18, tmp_path / "stopped")])
    train_with_stops(recipe, tmp_path / "stopped", 41)
    assert model_bytes(tmp_path / "whole") == model_bytes(tmp_path / "stopped")
    assert not list((tmp_path / "whole").glob("teacher-*"))
