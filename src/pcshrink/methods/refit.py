"""How well the channels that stay can stand in for those that leave: second moments, elimination, least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

POSITIONS = 256  # of an image that are looked at; neighbours say much the same
DAMPING = 0.01  # added to the moments, as a share of their mean: images that were not seen differ a little
SCARCE = 10.0  # the damping grows by so much for each input of the layer to one that was seen
AT_ONCE = 128  # rounds in which a group is taken apart; wide ones lose several channels in each

Plain: TypeAlias = nn.Linear | _ConvNd


class Readings:
    """What a layer is fed, summed over batches.

    Args:
        layer: A plain convolution or a linear layer.

    Attributes:
        moment: Sum of the second moments of its inputs (n, n), with a constant 1 as the last where it has a bias.
        batches: How many were summed.
        rows: How many inputs they held.
    """

    def __init__(self, layer: Plain) -> None:
        weight = layer.weight
        inputs = weight.shape[1] + int(layer.bias is not None)
        self.layer = layer
        self.moment = torch.zeros(inputs, inputs, device=weight.device)
        self.batches = self.rows = 0

    def look(self, module: Plain, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Forward hook of the layer."""
        with torch.no_grad(), torch.autocast(output.device.type, enabled=False):
            rows = _rows(args[0].detach().float(), isinstance(module, nn.Linear))
            if module.bias is not None:
                rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
            self.moment += rows.T @ rows / len(rows)
        self.batches += 1
        self.rows += len(rows)

    def worth(self) -> Tensor:
        """What a wrong number at each output costs (o,): one over its mean square, so layers weigh alike."""
        rows = self._full_weight()
        energy = torch.einsum("oi,ij,oj->o", rows, self.moment.double() / max(self.batches, 1), rows)
        return 1 / (energy.clamp(min=1e-12) * len(energy))

    def _full_weight(self) -> Tensor:
        """The kernel (o, n), summed over its places, with the bias as the last column."""
        weight, bias = _kernel(self.layer).sum(dim=2), self.layer.bias
        return weight if bias is None else torch.cat([weight, bias.detach().double()[:, None]], dim=1)

    def damped(self) -> Tensor:
        """The mean second moment with a little added to its diagonal, more where few inputs were seen."""
        moment = self.moment.double() / max(self.batches, 1)
        share = DAMPING * (1 + SCARCE * len(moment) / max(self.rows, 1))
        return moment + (share * moment.diagonal().mean() + 1e-12) * torch.eye(len(moment), device=moment.device)

    def weighed(self) -> Tensor:
        """What the inputs do to the outputs together: (n, n), the kernel's columns times each other."""
        kernel = _kernel(self.layer) * self.worth().sqrt()[:, None, None]
        rows = kernel.movedim(2, 0).flatten(0, 1)
        if self.layer.bias is not None:  # the constant never leaves, so what it is worth does not matter
            rows = torch.cat([rows, rows.new_zeros(len(rows), 1)], dim=1)
        return rows.T @ rows

    @torch.no_grad()
    def refit_(self, stays: Tensor) -> None:
        """Let the inputs that stay (bool, one each) do, as nearly as they can, what all of them did."""
        weight, bias, moment = self.layer.weight, self.layer.bias, self.damped()
        kept = torch.cat([stays, stays.new_ones(int(bias is not None))]).nonzero().flatten()
        # x = A x[kept] by least squares, so W x = (W A) x[kept].
        stand_in = torch.linalg.solve(moment[kept][:, kept], moment[kept]).T  # (n, kept)
        inputs = weight.shape[1]
        kernel = torch.einsum("oi...,ik->ok...", weight.detach().double(), stand_in[:inputs])
        weight.zero_()
        channels = kept[kept < inputs]
        weight[:, channels] = kernel[:, : len(channels)].to(weight)
        if bias is not None:
            bias += kernel[:, -1].reshape(len(bias), -1).sum(dim=1).to(bias)

    def state(self) -> dict[str, Tensor | int]:
        """Everything that was summed."""
        return {"moment": self.moment, "batches": self.batches, "rows": self.rows}

    def load(self, state: dict[str, Tensor | int]) -> None:
        """Go on from a state."""
        self.moment = torch.as_tensor(state["moment"]).to(self.moment)
        self.batches, self.rows = int(state["batches"]), int(state["rows"])


@dataclass
class View:
    """One layer's view of a group while it is taken apart.

    Attributes:
        inverse: Of the moment of the inputs that are left (n + 1, n + 1); the last stands for none.
        weighed: What they do to the outputs together, of the same size.
        index: (C, most) the inputs that belong to each channel, filled up with n.
    """

    inverse: Tensor
    weighed: Tensor
    index: Tensor

    @classmethod
    def of(cls, readings: Readings, index: Tensor, inputs: int) -> View:
        """Before anything has left."""
        inverse, weighed = torch.linalg.inv(readings.damped()), readings.weighed()
        # A place for "no input", so that channels with fewer inputs than others need no case of their own.
        index = torch.where(index == inputs, len(inverse), index).to(inverse.device)
        return cls(_with_none(inverse, 1.0), _with_none(weighed, 0.0), index)

    def losses(self) -> Tensor:
        """For each channel how much is lost if it leaves and the others make up for it (C,)."""
        rows, columns = self.index[:, :, None], self.index[:, None, :]
        solved = torch.linalg.solve(self.inverse[rows, columns], self.weighed[rows, columns])
        losses: Tensor = solved.diagonal(dim1=1, dim2=2).sum(dim=1)
        return losses

    def remove(self, channels: Tensor) -> None:
        """Let channels leave and the others make up for them."""
        gone = self.index[channels].flatten().unique()
        gone = gone[gone < len(self.inverse) - 1]
        share = torch.linalg.solve(self.inverse[gone][:, gone], self.inverse[gone])
        moved = self.weighed[:, gone] @ share
        self.weighed += share.T @ self.weighed[gone][:, gone] @ share - moved - moved.T
        self.inverse -= self.inverse[:, gone] @ share
        # What has left must not make later systems singular.
        self.inverse[gone, gone] = 1.0


def eliminate(views: list[View], channels: int) -> tuple[Tensor, Tensor]:
    """Take a group apart, each time the channels that cost least.

    Returns:
        The channels in the order in which they leave, and for each what leaving cost, never falling (both (C,)).
    """
    left = torch.ones(channels, dtype=torch.bool)
    order: list[int] = []
    costs: list[float] = []
    step = max(channels // AT_ONCE, 1)
    while len(order) < channels - 1:
        losses = torch.stack([view.losses().cpu() for view in views]).sum(dim=0)
        losses = losses.clamp(min=0).masked_fill(~left, float("inf"))
        lowest = losses.topk(min(step, channels - 1 - len(order)), largest=False)
        order += lowest.indices.tolist()
        costs += lowest.values.tolist()
        left[lowest.indices] = False
        for view in views:
            view.remove(lowest.indices.to(view.index.device))
    order += left.nonzero().flatten().tolist()
    costs.append(costs[-1] if costs else 1.0)
    return torch.tensor(order), torch.tensor(costs).double().cummax(dim=0).values


def _with_none(matrix: Tensor, corner: float) -> Tensor:
    wider: Tensor = torch.block_diag(matrix, matrix.new_full((1, 1), corner))
    return wider


def _kernel(layer: Plain) -> Tensor:
    """The weight (o, n, places of the kernel)."""
    weight = layer.weight.detach().double()
    return weight.reshape(*weight.shape[:2], -1)


def _rows(x: Tensor, linear: bool) -> Tensor:
    """Inputs of a layer as rows (N, C); of large images some positions only."""
    if linear:
        return x.flatten(0, -2)
    flat = x.flatten(2)
    stride = max(flat.shape[2] // POSITIONS, 1)
    stride += int(stride > 1 and stride % 2 == 0)  # odd, so that it meets all columns of an image of even width
    return flat[:, :, ::stride].movedim(1, -1).flatten(0, 1)
