"""The surgeon: what leaves is what others can stand in for, by plain algebra, and the readers are refitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.errors import ConfigError
from pcshrink.methods.refit import Readings, View, eliminate
from pcshrink.methods.surgeon import SurgeonConfig
from pcshrink.train.run import train
from testing.methods import STEPS, check_short_run, short_recipe


def _watched(layer: nn.Module, x: Tensor) -> Readings:
    readings = Readings(layer)
    handle = layer.register_forward_hook(readings.look)
    layer.train()(x)
    handle.remove()
    return readings


def _brute(layer: nn.Linear, x: Tensor, gone: list[int]) -> float:
    """Least squares from what is left to what the layer gave, by hand; each output relative to its own size."""
    y = layer(x).detach().double()
    left = [i for i in range(x.shape[1]) if i not in gone]
    fit = x[:, left].double()
    rest = y - fit @ torch.linalg.lstsq(fit, y).solution
    return float((rest.square().sum(dim=0) / y.square().sum(dim=0)).mean())


def test_losses_are_those_of_least_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """What leaving costs is what a least-squares fit without the channel leaves over, also after others have left."""
    monkeypatch.setattr("pcshrink.methods.refit.DAMPING", 1e-9)
    torch.manual_seed(0)
    x = torch.randn(400, 6) @ torch.randn(6, 6)
    layer = nn.Linear(6, 3, bias=False)
    view = View.of(_watched(layer, x), torch.arange(6)[:, None], 6)
    for channel, loss in enumerate(view.losses().tolist()):
        assert loss == pytest.approx(_brute(layer, x, [channel]), rel=1e-3)
    view.remove(torch.tensor([2]))
    assert float(view.losses()[4]) == pytest.approx(_brute(layer, x, [2, 4]) - _brute(layer, x, [2]), rel=1e-3)


def test_a_copy_leaves_first_and_is_made_up_for() -> None:
    """Of two equal channels one leaves at no cost, and the output stays."""
    torch.manual_seed(0)
    x = torch.randn(8, 5, 6, 6)
    x[:, 3] = 2 * x[:, 1]
    layer = nn.Conv2d(5, 4, 3)
    before = layer(x).detach()
    readings = _watched(layer, x)
    order, costs = eliminate([View.of(readings, torch.arange(5)[:, None], 5)], 5)
    assert int(order[0]) in (1, 3)
    assert float(costs[0]) < 0.05 * float(costs[1])
    stays = torch.arange(5) != order[0]
    readings.refit_(stays)
    assert float(layer.weight[:, ~stays].detach().abs().max()) == 0
    assert torch.allclose(layer(x), before, atol=0.05)


def test_bias_takes_the_mean() -> None:
    """A constant channel moves into the bias."""
    torch.manual_seed(0)
    x = torch.randn(200, 3)
    x[:, 2] = 5.0
    layer = nn.Linear(3, 2)
    before = layer(x).detach()
    readings = _watched(layer, x)
    readings.refit_(torch.tensor([True, True, False]))
    assert torch.allclose(layer(x), before, atol=0.3)
    x[:, 2] = 0.0
    assert torch.allclose(layer(x), before, atol=0.3)


def test_channels_with_several_inputs() -> None:
    """After flattening a channel is several inputs, which leave together."""
    torch.manual_seed(0)
    x = torch.randn(300, 6)
    x[:, 2:4] = x[:, 4:6]  # channel 1 is a copy of channel 2
    readings = _watched(nn.Linear(6, 4), x)
    index = torch.tensor([[0, 1], [2, 3], [4, 5]])
    order, costs = eliminate([View.of(readings, index, 6)], 3)
    assert int(order[0]) in (1, 2)
    assert float(costs[0]) < 0.05 * float(costs[1])


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def test_refitted_network_stays_nearer() -> None:
    """With the readers refitted the network changes less than with the same channels simply cut."""
    model, x = _net(), torch.randn(64, 3, 8, 8)
    before = model(x).detach()
    shrinker = pcs.attach_(model, x[:2], SurgeonConfig(ratio=0.25))
    plain = pcs.attach_(_net(), x[:2], SurgeonConfig(ratio=0.25))
    method = shrinker.method
    method.start()
    for part in x.split(16):
        method.watch(model, part)
    assert method.finish()
    keep = method.keep()
    assert all(int(mask.sum()) == 6 for mask in keep.values())
    cut = pcs.compact(plain.model, plain.plan(keep), x[:2])
    refitted = pcs.compact(model, shrinker.plan(), x[:2])
    with torch.no_grad():
        moved = [float((net(x) - before).norm()) for net in (refitted, cut)]
    assert moved[0] < 0.5 * moved[1]


def test_nothing_to_refit() -> None:
    """A network in which no plain layer reads a group is refused with the reason."""

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.b(self.a(x).relu())
            return out

    with pytest.raises(ConfigError, match="surgeon can do nothing for this network"):
        pcs.attach_(Grouped(), torch.randn(2, 3, 8, 8), SurgeonConfig())


def test_short_run(tmp_path: Path) -> None:
    """It learns, meets its budget, comes back from its files, and resumes bit by bit."""
    check_short_run(tmp_path, "surgeon", dense=4)  # it looks only, where others learn


def test_enough_images(tmp_path: Path) -> None:
    """It looks at as many images as it was asked to, and the rest of its phase takes no steps."""
    train(short_recipe("surgeon", most_images=100), tmp_path, quiet=True)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if row.get("phase") in ("dense", "shrink", "settle")]
    looked = STEPS + 2  # two batches of 64
    assert steps == [STEPS, looked, looked, looked + STEPS, looked + 2 * STEPS]


def test_number_of_images_is_checked() -> None:
    """No images are not enough."""
    with pytest.raises(ConfigError, match="most_images must be a whole number of at least 1"):
        SurgeonConfig(most_images=0)
