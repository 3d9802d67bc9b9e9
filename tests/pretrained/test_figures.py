"""Paired differences, schedules and searches, as pure functions."""

import json
from pathlib import Path

import pytest

from pcshrink.errors import ConfigError, OutOfReachError
from pcshrink.pretrained.paired import Paired
from pcshrink.pretrained.run import Shrunk
from pcshrink.pretrained.schedule import Speed, plan_schedule
from pcshrink.pretrained.search import CURVE, judge, search

pytestmark = pytest.mark.unit


def paired(images, worse, better=0):
    return Paired.of_counts(images, (better, worse), (worse, better), images - worse - better)


class TestPaired:
    def test_the_interval_holds_the_difference(self):
        found = paired(1000, 30, 10)
        assert found.difference == pytest.approx(2.0)
        assert found.low < 2.0 < found.high
        # sqrt(42 - 20^2 / 1002) / 1002 is 0.643 points
        assert found.high - found.low == pytest.approx(2 * 1.96 * 0.6437, rel=1e-3)

    def test_it_ends_at_a_hundred_points(self):
        assert paired(12, 12).high == 100
        assert paired(12, 0, 12).low == -100

    def test_more_images_narrow_it(self):
        few, many = paired(100, 3, 1), paired(10000, 300, 100)
        assert many.high - many.low < (few.high - few.low) / 5

    def test_no_change_is_not_certainty(self):
        assert paired(50, 0).high > 1

    @pytest.mark.parametrize(
        ("images", "worse", "verdict"),
        [(5000, 10, "within"), (5000, 200, "beyond"), (50, 0, "too few images to tell")],
    )
    def test_verdicts(self, images, worse, verdict):
        assert judge(paired(images, worse), 1.0) == verdict


class TestSchedule:
    SPEED = Speed(step=0.1, forward=0.03)

    def test_within_the_time(self):
        plan = plan_schedule(900, 100, self.SPEED, hours=0.4)
        assert plan.seconds <= 1440
        assert plan.epochs.total < plan.wanted
        assert plan.epochs.shrink < plan.epochs.settle

    def test_few_images_need_more_epochs(self):
        few, many = (plan_schedule(count, 10, self.SPEED, hours=None) for count in (100, 10000))
        assert few.epochs.total > many.epochs.total == 10

    def test_methods_that_push_get_a_share_of_the_epochs(self):
        pushed, chosen = (plan_schedule(900, 100, self.SPEED, None, pushing) for pushing in (0.3, 0.0))
        assert (pushed.epochs.warmup, pushed.epochs.shrink, pushed.epochs.settle) == (1, 3, 6)
        assert (chosen.epochs.warmup, chosen.epochs.shrink, chosen.epochs.settle) == (0, 1, 9)

    def test_too_little_time(self):
        with pytest.raises(ConfigError, match="too short: 4 epochs"):
            plan_schedule(100000, 1000, self.SPEED, hours=0.5)


class TestSearch:
    @staticmethod
    def run_with_limit(least, trained):
        """Networks below a share lose 5 points, others none."""

        def run(share: float, folder: Path) -> Shrunk:
            trained.append(share)
            worse = 0 if share >= least else 250
            return Shrunk(folder, paired(5000, worse), (share, share, share), share, share, True)

        return run

    def test_it_finds_the_edge(self, tmp_path):
        trained: list[float] = []
        found = search(1.0, tmp_path, self.run_with_limit(0.5, trained))
        assert len(trained) == 4
        assert 0.5 <= found.best.share < 0.6
        assert found.conclusion().startswith("smallest network within 1 points")
        kept = json.loads((tmp_path / CURVE).read_text())
        assert sorted(row["share"] for row in kept["networks"]) == sorted(trained)

    def test_a_share_out_of_reach_ends_nothing(self, tmp_path):
        train = self.run_with_limit(0.1, [])

        def run(share: float, folder: Path) -> Shrunk:
            if share < 0.5:
                raise OutOfReachError("too fast for any network")
            return train(share, folder)

        found = search(1.0, tmp_path, run)
        assert 0.5 <= found.best.share < 0.6
        assert all(point.share >= 0.5 for point in found.points)

    def test_none_is_good_enough(self, tmp_path):
        found = search(1.0, tmp_path, self.run_with_limit(2.0, []))
        assert found.best is None
        assert "no network" in found.conclusion()
