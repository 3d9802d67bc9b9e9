"""The salience generator: GAP, FC, BatchNorm, ReLU, FC, hard sigmoid."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.methods.pcs.generating import Generate, can_generate

MIN_HIDDEN = 8


def hidden_width(channels: int, reduction: int) -> int:
    """Width between the two layers: the layer's output width over ``reduction``, at least 8."""
    return max(channels // reduction, MIN_HIDDEN)


class SalienceGenerator(nn.Module):
    """Gives every channel of a layer a weight in [0, 1] from the layer's pooled input.

    Args:
        in_features: Channels of the layer's input.
        channels: Channels of the layer's output.
        hidden: Width between the two linear layers.
        norm: BatchNorm1d before the ReLU.
    """

    def __init__(self, in_features: int, channels: int, hidden: int, *, norm: bool = True) -> None:
        super().__init__()
        self.fc1 = nn.Linear(in_features, hidden, bias=not norm)
        self.norm = nn.BatchNorm1d(hidden) if norm else None
        self.fc2 = _bare_linear(hidden, channels)
        nn.init.uniform_(self.fc2.weight, -0.02, 0.02)
        nn.init.zeros_(self.fc2.bias)  # until ``start_at``

    def start_at(self, salience: float) -> None:
        """Let every salience start at this value."""
        # The hard sigmoid is z / 6 + 1 / 2, and it still has a gradient below 1.
        nn.init.constant_(self.fc2.bias, 6 * (salience - 0.5))

    def forward(self, pooled: Tensor) -> Tensor:
        """(B, C_in) -> salience (B, C_out), in float32 or wider whatever autocast says."""
        with torch.autocast(pooled.device.type, enabled=False):
            return F.hardsigmoid(self.fc2(self._hidden(pooled)))

    def with_handle(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """The salience, and the same once more for a penalty to take hold of.

        What pulls at the second one moves the last layer alone. A budget may ask for a penalty many times as strong as
        the paper's, which would otherwise bend the features of the network itself through the pooled input. It also
        has a gradient where the salience has reached 1, so that no channel is out of reach.
        """
        if self.norm is not None and self.generates_plainly(pooled):
            made: tuple[Tensor, Tensor] = Generate.apply(self.norm, pooled, *self.learned(self.norm))
            return made
        with torch.autocast(pooled.device.type, enabled=False):
            hidden = self._hidden(pooled)
            salience = F.hardsigmoid(self.fc2(hidden))
            return salience, F.relu(self.fc2(hidden.detach()) / 6 + 0.5)

    def generates_plainly(self, pooled: Tensor) -> bool:
        """Whether this is a plain training pass, which can be done in one step of autograd."""
        return can_generate(self.fc1, self.norm, self.fc2, pooled)

    def learned(self, norm: nn.BatchNorm1d) -> tuple[Tensor, ...]:
        """All parameters, in the order in which that step takes them."""
        return self.fc1.weight, norm.weight, norm.bias, self.fc2.weight, self.fc2.bias

    def _hidden(self, pooled: Tensor) -> Tensor:
        return F.relu(self._normalise(self.fc1(pooled.to(self.fc1.weight.dtype))))

    def _normalise(self, hidden: Tensor) -> Tensor:
        if self.norm is None:
            return hidden
        if self.training and hidden.shape[0] < 2:  # no batch statistics from a single sample
            norm = self.norm
            return F.batch_norm(hidden, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
        normalised: Tensor = self.norm(hidden)
        return normalised


def _bare_linear(inputs: int, outputs: int) -> nn.Linear:
    """A layer whose values are set afterwards; ``skip_init`` gives the same and takes a hundred times as long."""
    layer = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(layer)
    layer.in_features, layer.out_features = inputs, outputs
    layer.weight, layer.bias = nn.Parameter(torch.empty(outputs, inputs)), nn.Parameter(torch.empty(outputs))
    return layer
