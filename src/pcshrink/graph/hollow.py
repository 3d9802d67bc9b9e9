"""Run a model for its shapes: convolutions and matrix products give zeros, unless something looks at their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pcshrink.graph.model import named_tensors
from pcshrink.graph.record import is_mutable, operands_of, short_name

aten = torch.ops.aten
VALUE_TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
# Ways to values that no operation sees.
READS = ("tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "storage", "untyped_storage")


class ValuesNeeded(BaseException):
    """Something depends on values that were not computed; no ``Exception``, since models may catch those."""


class Hollow(TorchFunctionMode):
    """Skips what takes the most time and changes no shape; active while the model runs.

    Whatever turns skipped values into numbers, flags, indices or sizes, or writes them into the model's own tensors,
    ends the pass by ``ValuesNeeded``. So a pass that comes to its end did what it would have done with all values.

    Args:
        copied: What runs; a copy, since it may keep some of the zeros.
        model: What it is a copy of. One that still uses tensors of the model itself cannot stand for it.
    """

    def __init__(self, copied: nn.Module, model: nn.Module) -> None:
        super().__init__()
        self.own = {_memory(tensor) for tensor in named_tensors(copied).values()}
        self.strange = {id(tensor) for tensor in named_tensors(model).values()}
        self.skipped: set[int] = set()  # memory that holds something else than it should
        self.looked = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse to hand out values."""
        if getattr(func, "__name__", "") in READS and self._is_skipped(args[:1]):
            self._stop()
        return func(*args, **kwargs or {})

    def compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation, or give zeros of the right shape."""
        given = operands_of(args, kwargs)
        tainted = self._is_skipped(given)
        if any(id(tensor) in self.strange for tensor in given):
            self._stop()
        if tainted and (_reads_values(func) or (is_mutable(func) and self._writes_own(args))):
            self._stop()
        made = SHAPES[func](*args, **kwargs) if func in SHAPES else None
        out = func(*args, **kwargs) if made is None else made
        outs = [item for item in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(item, Tensor)]
        if tainted and "pool" not in short_name(func) and any(not t.is_floating_point() for t in outs):
            self._stop()
        memory = {_memory(tensor) for tensor in outs}
        if tainted or made is not None:
            self.skipped |= memory
        else:
            self.skipped -= memory  # new tensors may lie where others were
        return out

    def _is_skipped(self, tensors: Any) -> bool:
        return any(isinstance(t, Tensor) and _memory(t) in self.skipped for t in tensors)

    def _writes_own(self, args: tuple[object, ...]) -> bool:
        return any(isinstance(t, Tensor) and _memory(t) in self.own for t in args[:1])

    def _stop(self) -> None:
        self.looked = True
        raise ValuesNeeded


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _reads_values(func: Any) -> bool:
    return func.namespace != "aten" or any(tag in func.tags for tag in VALUE_TAGS)


def _alike(*tensors: Tensor | None) -> bool:
    """Ordinary tensors of one type in one place, as a product needs them."""
    given = [t for t in tensors if t is not None]
    plain = all(type(t) in (Tensor, nn.Parameter) and t.layout is torch.strided for t in given)
    return plain and given[0].is_floating_point() and len({(t.dtype, t.device) for t in given}) == 1


def _convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int,
) -> Tensor | None:  # fmt: skip
    fits = x.ndim == weight.ndim and len(stride) == len(padding) == len(dilation) == x.ndim - 2
    if transposed or not fits or x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        return None  # the operation itself knows what to do, or what to say
    if not (_alike(x, weight, bias) and x.is_contiguous() and weight.is_contiguous()):
        return None
    sizes = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    ]
    return x.new_zeros(x.shape[0], weight.shape[0], *sizes) if min(sizes) > 0 else None


def _product(left: Tensor, right: Tensor) -> Tensor | None:
    rank = left.ndim
    if rank != right.ndim or left.shape[-1] != right.shape[-2] or left.shape[:-2] != right.shape[:-2]:
        return None
    return left.new_zeros(*left.shape[:-1], right.shape[-1]) if _alike(left, right) else None


def _sum_and_product(bias: Tensor, left: Tensor, right: Tensor, **factors: object) -> Tensor | None:
    if bias.shape != right.shape[-1:] or not _alike(bias, left):
        return None
    return _product(left, right)


SHAPES: dict[Any, Callable[..., Tensor | None]] = {
    aten.convolution.default: _convolution,
    aten.mm.default: _product,
    aten.bmm.default: _product,
    aten.addmm.default: _sum_and_product,
}
