"""Maps that come apart and that meet."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testing.random_ops.table import Applied, Pick, op


@op(4, common=True)
def parts(pick: Pick, x: Tensor) -> Applied | None:
    """Several tensors from one."""
    count = pick(2, 2, 3)
    if x.shape[1] % count or x.shape[1] < 2 * count:
        return None
    size = x.shape[1] // count
    return pick(
        lambda x: x.chunk(count, 1),
        lambda x: x.split(x.shape[1] // count, 1),
        lambda x: x.split(size, 1),
        lambda x: x.split([size + 1, x.shape[1] - size - 1], 1),
        lambda x: x.tensor_split(count, 1),
        lambda x: (x[:, : x.shape[1] // count], x[:, x.shape[1] // count :]),
        lambda x: (x[:, :size], x[:, size:]),
        lambda x: x.unflatten(1, (count, -1)).unbind(1),
        lambda x: (x.narrow(1, 0, x.shape[1] // count), x),
    )


class Splitter(nn.Module):
    """Knows the sizes of its pieces as attributes, in a list or as one width."""

    def __init__(self, sizes: list[int], width: int | None) -> None:
        super().__init__()
        self.splits, self.width = sizes, width

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(self.splits if self.width is None else self.width // 2, 1)


@op(4)
def parts_by_attribute(pick: Pick, x: Tensor) -> Applied | None:
    if x.shape[1] < 6:
        return None
    first = pick(2, 3)
    listed = pick(True, False) or x.shape[1] % 2 == 1
    return Splitter([first, x.shape[1] - first], None if listed else x.shape[1])


@op(4)
def folded_view(pick: Pick, x: Tensor) -> Applied | None:
    """Channels seen as a matrix, one side of which is summed up."""
    rows = pick(2, 2, 3)
    if x.shape[1] % rows or x.shape[1] <= rows:
        return None
    kind, side = pick("sum", "mean", "amax"), pick(1, 2)
    first = pick(True, False)
    return lambda x: getattr(x.unflatten(1, (rows, -1) if first else (-1, rows)), kind)(side)


@op(4)
def repeated(pick: Pick, x: Tensor) -> Applied | None:
    if x.shape[1] > 12:
        return None
    return pick(
        lambda x: x.repeat(1, 2, 1, 1), lambda x: x.repeat_interleave(2, 1), lambda x: torch.cat([x, x], 1),
        lambda x: x.unsqueeze(2).expand(-1, -1, 2, -1, -1).flatten(1, 2), lambda x: torch.cat([x, -x], 1).relu(),
    )  # fmt: skip


@op(4)
def neighbours(pick: Pick, x: Tensor) -> Applied | None:
    if x.shape[1] > 6:
        return None
    return lambda x: F.unfold(x, 3, padding=1).unflatten(2, x.shape[2:])


@op(4)
def slice_write(pick: Pick, x: Tensor) -> Applied:
    def write(x: Tensor) -> Tensor:
        y = x.clone()
        y[:, :, 0] = value
        return y

    def write_channels(x: Tensor) -> Tensor:
        y = x.clone()
        y[:, :2] += 1
        return y

    def scatter_view(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, :, ::2] = x[:, :, ::2]
        return y

    value = pick(0.0, 1.0)
    return pick(write, write_channels, scatter_view)


@op(4)
def drop(pick: Pick, x: Tensor) -> Applied:
    return pick(nn.Dropout(0.2), nn.Dropout2d(0.2), nn.Identity(), nn.AlphaDropout(0.1))


@op(4, 4, common=True)
def join(pick: Pick, x: Tensor, y: Tensor) -> Applied | None:
    if x.shape[2:] != y.shape[2:] or x.shape[1] + y.shape[1] > 32:
        return None
    return lambda x, y: torch.cat([x, y], 1)


@op(4, 4, 4)
def join_three(pick: Pick, x: Tensor, y: Tensor, z: Tensor) -> Applied | None:
    if len({t.shape[2:] for t in (x, y, z)}) > 1 or x.shape[1] + y.shape[1] + z.shape[1] > 32:
        return None
    return lambda x, y, z: torch.cat([z, x, y], 1)


@op(4, 4, common=True)
def meet(pick: Pick, x: Tensor, y: Tensor) -> Applied | None:
    try:
        torch.broadcast_shapes(x.shape, y.shape)
    except RuntimeError:
        return None
    made = pick(
        lambda x, y: x + y, lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - 0.5 * y,
        lambda x, y: torch.maximum(x, y), lambda x, y: x / (1 + y.abs()), lambda x, y: torch.lerp(x, y, 0.3),
        lambda x, y: torch.where(x > 0, x, y), lambda x, y: torch.atan2(x, y.abs() + 1),
    )  # fmt: skip
    if x.shape == y.shape:
        stacked: list[Applied] = [
            lambda x, y: torch.stack([x, y]).sum(0), lambda x, y: torch.stack([x, y], 2).amax(2),
            lambda x, y: x.clone().add_(y), lambda x, y: torch.add(x, y, alpha=2), lambda x, y: sum((x, y)),
        ]  # fmt: skip
        made = pick(made, made, *stacked)
    return made


@op(4, 4)
def correlate(pick: Pick, x: Tensor, y: Tensor) -> Applied | None:
    """Products of two maps over their channels, or over their places."""
    if x.shape != y.shape:
        return None
    return pick(
        lambda x, y: (x * y).sum(1, keepdim=True) + y,
        lambda x, y: torch.einsum("nchw,ncij->nhwij", x, y).mean((3, 4)).unsqueeze(1),
        lambda x, y: torch.bmm(x.flatten(2), y.flatten(2).transpose(1, 2)).unsqueeze(1),
    )
