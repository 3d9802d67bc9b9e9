"""A forward pass of ones, to see which values of a network depend on which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pcshrink.graph.model import tensors
from pcshrink.surgery.gate import GATE

CONVS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
# They mix channels, so each of their outputs needs all of their inputs.
MIXERS = ("matmul", "rmatmul", "bmm", "mm", "baddbmm", "addmm", "einsum", "scaled_dot_product_attention",
          "layer_norm", "group_norm", "rms_norm", "local_response_norm", "softmax", "bilinear")  # fmt: skip
CHANNELWISE = ("batch_norm", "instance_norm")


@dataclass
class Call:
    """One call of a convolution or linear layer.

    Attributes:
        name: The layer that holds the kernel; empty where none does.
        madds: Multiply-adds for one sample.
        share: For each sample, which share of them is needed (B,).
    """

    name: str
    madds: float
    share: Tensor


@dataclass
class _Open:
    """A call whose outputs are not known to be needed yet."""

    name: str
    madds: float
    reads: Tensor  # (n, groups): share of the input channels that are not zero
    wrote: Tensor  # gets the gradient
    axis: int


class Shadow(TorchFunctionMode):
    """Replaces what layers compute by ones, and keeps track of who reads and writes what.

    Args:
        model: The network; its gates' stand-ins say what passes.
        batch: Samples in the batch.
    """

    def __init__(self, model: nn.Module, batch: int) -> None:
        super().__init__()
        self.model, self.batch = model, batch
        named = ((name, p) for name, p in model.named_parameters() if GATE not in name.split("."))
        self.owners = {id(p): name.rpartition(".")[0] for name, p in named}
        self.calls: list[_Open] = []
        self.needed: list[Tensor] = []

    def run(self, images: Tensor) -> list[Call]:
        """Send images through the network; every call of a layer in order."""
        with self:
            out = self.model(images)
        self.needed += [t.sum() for t in tensors(out) if t.requires_grad]
        wrote = [call.wrote for call in self.calls]
        total = torch.stack([t.double() for t in self.needed]).sum() if self.needed else None
        grads: Any = [None] * len(wrote)
        if total is not None and wrote:
            grads = torch.autograd.grad(total, wrote, allow_unused=True)
        return [self._close(call, grad) for call, grad in zip(self.calls, grads, strict=True)]

    def _close(self, call: _Open, grad: Tensor | None) -> Call:
        needed = torch.zeros_like(call.wrote) if grad is None else grad
        groups = call.reads.shape[1]
        writes = (needed != 0).movedim(call.axis, 1).flatten(1).unflatten(1, (groups, -1)).double().mean(2)
        share = (call.reads * writes).mean(1).cpu()
        if len(share) % self.batch:  # the first axis does not count samples, so nothing is known about them
            share = torch.ones(self.batch, dtype=torch.float64)
        return Call(call.name, call.madds, share.unflatten(0, (self.batch, -1)).mean(1))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:
        """Ones for what layers write; other operations as they are."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        if name in CONVS or name == "linear":
            return self._layer(func, args, kwargs, name)
        if name in CHANNELWISE:
            x = tensors((args, kwargs))[0]
            return x + (1 - x).detach()
        if name in MIXERS:
            return self._mix(func, args, kwargs)
        if "max_pool" in name:  # a maximum has a gradient in one place only, though it needs all of them
            self._need(args, kwargs)
            return func(*_detached(args), **_detached(kwargs))
        return func(*args, **kwargs)

    def _need(self, *read: object) -> None:
        self.needed += [t.sum() for t in tensors(read) if t.requires_grad]

    def _mix(self, func: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        self._need(args, kwargs)
        return torch.ones_like(func(*_detached(args), **_detached(kwargs)))

    def _layer(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
        names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
        given = dict(zip(names, args, strict=False)) | kwargs
        x, weight, linear, transposed = given.pop("input"), given["weight"], name == "linear", "transpose" in name
        if x.ndim < 2 or not (linear or x.ndim == weight.ndim):
            return self._mix(func, args, kwargs)  # a single sample without a batch axis
        with torch.no_grad():  # one sample is enough to know the shape
            one = func(x[:1], **given) if not transposed else func(x[:1], *args[1:], **kwargs)
        out = torch.ones(len(x), *one.shape[1:], dtype=x.dtype, device=x.device, requires_grad=True)
        self._need(x)
        groups = 1 if linear or transposed else int(given.get("groups", 1))
        axis = x.ndim - 1 if linear else 1
        reads = (x != 0).movedim(axis, 1).reshape(len(x), x.shape[axis], -1).any(2)
        shares = reads.unflatten(1, (groups, -1)).double().mean(2)
        if linear:
            madds = one[..., 0].numel() * weight.numel()
        else:
            madds = (x[:1] if transposed else one).numel() * weight[0].numel()
        self.calls.append(_Open(self.owners.get(id(weight), ""), madds * len(x) / self.batch, shares, out, axis))
        return out * 1  # what follows may change it in place, which a leaf does not allow


def _detached(tree: object) -> Any:
    return torch.utils._pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)
