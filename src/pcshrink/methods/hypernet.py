"""The weight of a convolution, made from latent vectors of its input and output channels."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from pcshrink.coupling.units import Ids
from pcshrink.surgery.generated import Generated


class Hypernet(Generated):
    """The kernel from i to o is W2_oi E_oi + b2_oi, E_oi = Z_oi w1_oi + b1_oi in R^m, Z = z_out z_in' + B0.

    Args:
        conv: The convolution.
        latents: Latent vectors that it shares with others, by group, one entry for each channel.
        inputs: For each input channel its place in all shared latent vectors in a row; -1 for one of its own.
        outputs: The same for the output channels.
        size: m.
    """

    place_in: Tensor
    place_out: Tensor

    def __init__(
        self, conv: nn.Conv2d, latents: Mapping[str, nn.Parameter], inputs: Ids, outputs: Ids, size: int
    ) -> None:
        super().__init__()
        weight = conv.weight
        pairs, kernel = tuple(weight.shape[:2]), math.prod(conv.kernel_size)
        self.groups = tuple(latents)
        self.shape = tuple(weight.shape)
        self.shared = nn.ParameterList(latents.values())
        places = np.concatenate([inputs, outputs])
        places[places < 0] = sum(map(len, latents.values())) + np.arange((places < 0).sum())
        self.own = nn.Parameter(weight.new_ones(int((np.concatenate([inputs, outputs]) < 0).sum())))
        place = torch.as_tensor(places, device=weight.device)
        self.register_buffer("place_in", place[: len(inputs)], persistent=False)
        self.register_buffer("place_out", place[len(inputs) :], persistent=False)
        self.b0 = nn.Parameter(weight.new_zeros(pairs))
        self.w1, self.b1 = (nn.Parameter(weight.new_zeros(*pairs, size)) for _ in range(2))
        self.w2 = nn.Parameter(weight.new_zeros(*pairs, kernel, size))
        self.b2 = nn.Parameter(weight.new_zeros(*pairs, kernel))

    def embedded(self) -> Tensor:
        """E (out, in, m)."""
        latent = torch.cat([*self.shared, self.own])
        pairs = latent[self.place_out][:, None] * latent[self.place_in][None] + self.b0
        embedded: Tensor = pairs[..., None] * self.w1 + self.b1
        return embedded

    def weight(self) -> Tensor:
        """The weight, with its gradient."""
        # Not as a matrix product, which mixed precision would round.
        kernels = (self.w2 * self.embedded()[:, :, None]).sum(-1) + self.b2
        return kernels.reshape(self.shape)

    @torch.no_grad()
    def start_at_(self, weight: Tensor) -> None:
        """Give this very weight, all biases being zero: W2 = K E' / ||E||^2 for each kernel K.

        The entries of w1 are smaller than those of ``draw_`` by the root of m, so that ||E|| = |Z| in the mean and a
        learning rate means about what it means for a plain weight.
        """
        size = self.w1.shape[-1]
        self.w1.uniform_(-math.sqrt(3 / size), math.sqrt(3 / size))
        embedded = self.embedded()
        kernels = weight.detach().flatten(2)[..., None]
        square = embedded.square().sum(-1).clamp(min=torch.finfo(weight.dtype).tiny)
        self.w2.copy_(kernels * (embedded / square[..., None])[:, :, None])

    @torch.no_grad()
    def draw_(self) -> None:
        """Start from nothing: own latent entries normal, w1 in +-sqrt(3), W2 in +-sqrt(3 / (m fan)), biases zero."""
        fan = self.w2.shape[1] * self.w2.shape[2] * self.w2.shape[3]
        self.own.normal_()
        self.w1.uniform_(-math.sqrt(3), math.sqrt(3))
        self.w2.uniform_(-math.sqrt(3 / fan), math.sqrt(3 / fan))
