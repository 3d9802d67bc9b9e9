"""A convolution as basis filters and their mixture: k x k from the inputs to the ranks, 1 x 1 from there on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Decomposed(nn.Module):
    """Two convolutions in the place of one; with all ranks they compute the same.

    Attributes:
        basis: The k x k filters, one for each rank.
        mix: How the ranks make the outputs.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        rank = min(conv.weight[0].numel(), conv.out_channels)
        kind: dict[str, Any] = {"device": conv.weight.device, "dtype": conv.weight.dtype}
        padding = conv.padding if isinstance(conv.padding, str) else tuple(conv.padding)
        self.basis = nn.Conv2d(
            conv.in_channels, rank, conv.kernel_size, conv.stride, padding, conv.dilation,  # type: ignore[arg-type]
            bias=False, padding_mode=conv.padding_mode, **kind,
        )  # fmt: skip
        self.mix = nn.Conv2d(rank, conv.out_channels, 1, bias=conv.bias is not None, **kind)
        self.requires_grad_(conv.weight.requires_grad).train(conv.training)

    def forward(self, x: Tensor) -> Tensor:
        """Basis, then mixture."""
        mixed: Tensor = self.mix(self.basis(x))
        return mixed

    @torch.no_grad()
    def factorise_(self, conv: nn.Conv2d) -> None:
        """Take the values of a convolution: W = (U S) V by singular values, V the basis, U S the mixture."""
        left, sizes, right = torch.linalg.svd(conv.weight.detach().double().flatten(1), full_matrices=False)
        self.basis.weight.copy_(right.reshape(self.basis.weight.shape))
        self.mix.weight.copy_((left * sizes).reshape(self.mix.weight.shape))
        if self.mix.bias is not None and conv.bias is not None:
            self.mix.bias.copy_(conv.bias)

    def composed(self) -> nn.Conv2d:
        """One convolution of the same shape; its values are not those of the two."""
        basis = self.basis
        return nn.Conv2d(
            basis.in_channels, self.mix.out_channels, basis.kernel_size, basis.stride,  # type: ignore[arg-type]
            basis.padding, basis.dilation, bias=self.mix.bias is not None,  # type: ignore[arg-type]
            padding_mode=basis.padding_mode, device=basis.weight.device, dtype=basis.weight.dtype,
        )  # fmt: skip


def replace_(model: nn.Module, new: dict[nn.Module, nn.Module]) -> None:
    """Put modules into the places of others, wherever they stand."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if child in new:
                setattr(module, name, new[child])
