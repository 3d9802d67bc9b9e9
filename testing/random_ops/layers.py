"""Layers that a map goes through: convolutions, norms, activations."""

from __future__ import annotations

from torch import Tensor, nn

from testing.random_ops.table import ACTIVATIONS, WIDTHS, Applied, Pick, op


def _conv(pick: Pick, width: int, out: int, groups: int = 1) -> nn.Module:
    kernel = pick(1, 3)
    conv = nn.Conv2d(
        width, out, kernel, pick(1, 1, 2), padding=kernel // 2, groups=groups, bias=pick(True, False),
        padding_mode=pick(*["zeros"] * 9, "circular"),
    )  # fmt: skip
    parts: list[nn.Module] = [conv]
    if pick(True, True, False):
        parts.append(nn.BatchNorm2d(out, affine=pick(True, True, False)))
    if pick(True, True, False):
        parts.append(pick(nn.ReLU, nn.ReLU, nn.Hardswish)(inplace=True))
    return nn.Sequential(*parts) if len(parts) > 1 else conv


@op(4, common=True)
def conv(pick: Pick, x: Tensor) -> Applied:
    return _conv(pick, x.shape[1], pick(*WIDTHS))


@op(4, common=True)
def depthwise(pick: Pick, x: Tensor) -> Applied:
    return _conv(pick, x.shape[1], x.shape[1] * pick(1, 1, 2), groups=x.shape[1])


@op(4)
def grouped(pick: Pick, x: Tensor) -> Applied | None:
    groups = [g for g in (2, 3, 4) if x.shape[1] % g == 0]
    return _conv(pick, x.shape[1], pick(12, 24), groups=pick(*groups)) if groups else None


@op(4)
def transposed(pick: Pick, x: Tensor) -> Applied | None:
    groups = pick(1, 1, 2) if x.shape[1] % 2 == 0 else 1
    return nn.ConvTranspose2d(x.shape[1], pick(*WIDTHS), 2, stride=2, groups=groups) if x.shape[2] <= 4 else None


@op(4)
def weight_normed(pick: Pick, x: Tensor) -> Applied:
    return nn.utils.parametrizations.weight_norm(nn.Conv2d(x.shape[1], pick(*WIDTHS), 1))


@op(4, common=True)
def batch_norm(pick: Pick, x: Tensor) -> Applied:
    return nn.BatchNorm2d(x.shape[1], track_running_stats=pick(True, True, True, False))


@op(4)
def other_norm(pick: Pick, x: Tensor) -> Applied | None:
    if x.shape[1] % 2 or x.shape[2] * x.shape[3] < 4:
        return None
    kind = pick("group", "instance", "layer", "response", "one group")
    if kind == "layer":
        return nn.LayerNorm(x.shape[1:])
    if kind == "response":
        return nn.LocalResponseNorm(3)
    return (
        nn.InstanceNorm2d(x.shape[1], affine=True)
        if kind == "instance"
        else nn.GroupNorm(2 if kind == "group" else 1, x.shape[1])
    )


def _activation(pick: Pick, x: Tensor) -> Applied:
    kind = pick(*ACTIVATIONS[:2], *ACTIVATIONS, nn.PReLU)
    if kind is nn.PReLU:
        return nn.PReLU(pick(1, x.shape[1]))
    return kind(inplace=True) if kind is nn.ReLU and pick(True, False) else kind()


@op(4, common=True)
def activation(pick: Pick, x: Tensor) -> Applied:
    return _activation(pick, x)


@op(2)
def activation_2d(pick: Pick, x: Tensor) -> Applied:
    return _activation(pick, x)
