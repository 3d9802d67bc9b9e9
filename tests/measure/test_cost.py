"""The two conventions, batch sizes, shared and gated layers, and what must not change a count."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pcshrink.errors import ConfigError, TraceError
from pcshrink.measure import Profile, profile
from pcshrink.models import build, create

pytestmark = pytest.mark.unit


def image(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def row(cost: Profile, name: str, kind: str | None = None) -> Any:
    found = [r for r in cost.layers if r.name == name and kind in (None, r.kind)]
    assert len(found) == 1, (name, kind, cost.layers)
    return found[0]


class Everything(nn.Module):
    """Grouped, depthwise, dilated and transposed convs, functional linear, einsum, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(8, 16, 3, padding=1, groups=4)
        self.depthwise = nn.Conv2d(16, 16, 3, stride=2, padding=2, dilation=2, groups=16)
        self.up = nn.ConvTranspose2d(16, 6, 3, stride=2, groups=2)
        self.mix = nn.Conv1d(6, 8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.table = nn.Parameter(torch.rand(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(self.depthwise(self.grouped(x)))
        x = self.mix(x.flatten(2)).transpose(1, 2)
        x, _ = self.attention(x, x, x, need_weights=False)
        return torch.einsum("btc,cd->btd", x, self.table) @ F.linear(x, self.table.t()).transpose(1, 2)


NETS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (Everything, (1, 8, 9, 9)),
    (lambda: build("resnet20"), (1, 3, 32, 32)),
    (lambda: build("t2t_vit_14", img_size=32, depth=2), (1, 3, 32, 32)),
    (lambda: build("t2t_vit_t_14", img_size=32, depth=2), (1, 3, 32, 32)),
    (lambda: create("torchvision:shufflenet_v2_x0_5"), (1, 3, 64, 64)),
    (lambda: create("timm:swinv2_cr_tiny_224"), (1, 3, 224, 224)),
    (lambda: create("timm:beit_base_patch16_224", depth=2), (1, 3, 224, 224)),
    (lambda: create("timm:nf_resnet26"), (1, 3, 64, 64)),
    (lambda: create("torchvision:lraspp_mobilenet_v3_large"), (1, 3, 64, 64)),
]


@pytest.mark.parametrize(("make", "shape"), NETS)
def test_agrees_with_torchs_own_counter(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    model = make().eval()
    counter = FlopCounterMode(display=False)
    with counter:  # with gradients on: else MultiheadAttention takes a fused path that this counter does not know
        model(image(*shape))
    assert 2 * profile(model, image(*shape)).madds == counter.get_total_flops() > 0


@pytest.mark.parametrize("convention", ["layers", "paper"])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (Everything, (1, 8, 9, 9)),
        (lambda: build("resnet20"), (1, 3, 32, 32)),
        (lambda: build("t2t_vit_14", img_size=32, depth=2), (1, 3, 32, 32)),
        (lambda: create("timm:nf_resnet26"), (1, 3, 64, 64)),  # standardises its weights in every pass
    ],
)
def test_batch_size_is_divided_out(make: Callable[[], nn.Module], shape: tuple[int, ...], convention: Any) -> None:
    model = make()
    one, four = (profile(model, image(n, *shape[1:]), convention) for n in (1, 4))
    assert (one.madds, one.mem_access, one.params) == (four.madds, four.mem_access, four.params)
    assert (one.batch_size, four.batch_size) == (1, 4)


def test_rows_add_up_and_name_everything() -> None:
    model = Everything()
    cost = profile(model, image(2, 8, 9, 9))
    for field in ("madds", "mem_access", "params"):
        assert sum(getattr(r, field) for r in cost.layers) == getattr(cost, field)
    assert cost.params == sum(p.numel() for p in model.parameters())
    assert row(cost, "grouped").output_shape == (2, 16, 9, 9)
    assert row(cost, "grouped").mem_access == 16 * 2 * 9 + 16 * 81
    assert row(cost, "depthwise").madds == 16 * 25 * 9
    assert row(cost, "up").madds == 16 * 25 * 3 * 9
    assert row(cost, "attention", "linear").params == 3 * 8 * 8 + 3 * 8
    assert row(cost, "attention.out_proj").kind == "linear"
    assert row(cost, "attention", "matmul").mem_access == 0
    tokens = 11 * 11 - 2
    assert row(cost, "", "matmul").madds == tokens**2 * 5


def test_unbatched_image_is_one_sample() -> None:
    conv = nn.Conv2d(3, 4, 3)
    assert profile(conv, image(3, 8, 8)).madds == profile(conv, image(2, 3, 8, 8)).madds


def test_list_of_images_and_given_batch_size() -> None:
    class Lists(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, images: list[Tensor]) -> Tensor:
            return self.conv(torch.stack(images))

    cost = profile(Lists(), ([image(3, 8, 8), image(3, 8, 8)],))
    assert (cost.batch_size, cost.madds) == (2, 4 * 36 * 27)
    assert profile(Lists(), ([image(3, 8, 8)] * 2,), batch_size=1).madds == 2 * cost.madds


def test_several_inputs_and_outputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, 4), nn.Linear(5, 4)

        def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
            return {"sum": self.left(a) + self.right(b), "left": self.left(a)}

    cost = profile(Two(), {"a": image(2, 3), "b": image(2, 5)})
    assert cost.madds == 3 * 4 * 2 + 5 * 4
    assert profile(Two(), (image(2, 3), image(2, 5))).madds == cost.madds


def test_shared_module_computes_twice_and_is_stored_once() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(self.conv(x))

    cost = profile(Shared(), image(1, 4, 5, 5))
    assert (cost.params, cost.madds) == (144, 2 * 144 * 25)
    assert cost.mem_access == 144 + 2 * 4 * 25


def test_constant_work_counts_once_and_unused_parameters_are_listed() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = nn.Parameter(torch.rand(8, 2)), nn.Parameter(torch.rand(2, 8))
            self.unused = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return x @ (self.low @ self.high)

    one, two = profile(Odd(), image(1, 8)), profile(Odd(), image(2, 8))
    assert one.madds == two.madds == 8 * 2 * 8 + 64
    assert row(two, "unused").kind == "other"
    assert row(two, "unused").params == 12


def test_recurrent_layers_count() -> None:
    cost = profile(nn.LSTM(8, 16, batch_first=True), image(2, 5, 8))
    assert cost.madds == 5 * 4 * 16 * (8 + 16)


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.fc1(x.mean((2, 3)) if x.dim() == 4 else x)))
        return y * F.hardsigmoid(self.fc2(hidden))[:, :, None, None]


class Gated(nn.Module):
    def __init__(self, pool: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.pcs_gate, self.pool = nn.Conv2d(3, 4, 3, bias=False), Gate(), pool

    def forward(self, x: Tensor) -> Tensor:
        return self.pcs_gate(self.pool(x), self.conv(x))


POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "inside": lambda x: x,
    "mean outside": lambda x: x.mean((2, 3)),
    "sum outside": lambda x: x.sum((2, 3)) * (1 / 64),
}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(("convention", "extra"), [("layers", 0), ("paper", 3 * 64 + 8 + 2 * 8 + 8 + 4 + 4)])
def test_generators_are_counted_and_told_apart(convention: Any, extra: int, pool: str) -> None:
    cost = profile(Gated(POOLS[pool]), image(2, 3, 8, 8), convention)
    assert cost.gate_madds == 3 * 8 + 8 * 4 + extra
    assert cost.gate_params == 3 * 8 + 8 + 16 + 8 * 4 + 4
    assert cost.gate_mem_access == 3 * 8 + 8 * 4
    assert cost.madds - cost.gate_madds == row(cost, "conv").madds
    assert "of these the gates" in cost.summary()


@pytest.mark.parametrize("change", ["train", "frozen", "double", "bfloat16", "channels_last", "meta", "compiled"])
def test_state_of_the_model_changes_nothing(change: str) -> None:
    model, x = build("resnet20", widths=(4, 8, 8)), image(2, 3, 16, 16)
    expected = profile(model.eval(), x, "paper").to_dict()
    wrapped = model
    if change == "train":
        model.train()
    elif change == "frozen":
        model.requires_grad_(False)
    elif change in ("double", "bfloat16"):
        dtype = {"double": torch.float64, "bfloat16": torch.bfloat16}[change]
        model, x = model.to(dtype), x.to(dtype)
        wrapped = model
    elif change == "meta":
        model, x = copy.deepcopy(model).to("meta"), x.to("meta")
        wrapped = model
    elif change == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last)
    else:
        wrapped = torch.compile(model)  # type: ignore[assignment]
    before = copy.deepcopy(model.state_dict())
    modes = [m.training for m in model.modules()]
    random = torch.get_rng_state()
    assert profile(wrapped, x, "paper").to_dict() == expected
    assert modes == [m.training for m in model.modules()]
    assert torch.equal(random, torch.get_rng_state())
    same = (value.is_meta or torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(same)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_plain_data_and_table() -> None:
    cost = profile(build("digitsnet"), image(1, 1, 16, 16), "paper")
    assert json.loads(json.dumps(cost.to_dict()))["layers"][1] == {
        "name": "conv1",
        "kind": "conv",
        "params": 144,
        "madds": 36_864,
        "mem_access": 144 + 16 * 256,
        "output_shape": [1, 16, 16, 16],
    }
    lines = str(cost).splitlines()
    assert lines[0].split() == ["layer", "kind", "output", "params", "madds", "mem_access"]
    assert lines[2].startswith("(model)")
    assert lines[-2].split() == ["total", "77,754", f"{cost.madds:,}", f"{cost.mem_access:,}"]
    assert "paper convention" in lines[-1]
    assert len(repr(cost)) < 200


def test_wrong_arguments_say_so() -> None:
    with pytest.raises(ConfigError, match="convention must be one of layers, paper, got 'flops'"):
        profile(nn.Linear(2, 2), image(1, 2), "flops")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="batch_size must be at least 1, got 0"):
        profile(nn.Linear(2, 2), image(1, 2), batch_size=0)
    with pytest.raises(TraceError, match="does not run on the example input"):
        profile(nn.Linear(2, 2), image(1, 3))
