"""What single ATen operations cost, as pure functions of the tensors that went in and came out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pcshrink.graph.record import Op

NORMS = (
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_no_update",
    "_batch_norm_with_update",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "native_layer_norm",
    "native_group_norm",
    "_fused_rms_norm",
)
ACTIVATIONS = (
    "relu",
    "hardtanh",
    "leaky_relu",
    "rrelu_with_noise",
    "_prelu_kernel",
    "elu",
    "gelu",
    "silu",
    "mish",
    "softplus",
    "sigmoid",
    "hardsigmoid",
    "hardswish",
    "tanh",
)
POOLS = tuple(
    f"{prefix}{kind}_pool{n}d{suffix}"
    for kind in ("max", "avg")
    for n in (1, 2, 3)
    for prefix in ("", "_adaptive_", "adaptive_")
    for suffix in ("", "_with_indices")
)


@dataclass(frozen=True)
class Count:
    """One operation's cost for the whole batch.

    ``madds`` counts in both conventions; ``extra`` (bias, norm, activation, pool) in the paper's only.
    ``kernels`` are the constant operands of a conv, linear or recurrent layer; empty for anything else.
    """

    kind: str
    madds: int
    extra: int
    output: Tensor
    kernels: tuple[Tensor, ...] = ()


IsConstant = Callable[[Tensor], bool]


def op_name(op: Op) -> str:
    """``relu`` for both ``aten.relu.default`` and ``aten.relu_.default``; empty for a module boundary."""
    schema = getattr(op.func, "_schema", None)
    if schema is None:
        return ""
    name = str(schema.name).rpartition("::")[2]
    return name.removesuffix("_")


def count(op: Op, constant: IsConstant) -> Count | None:
    """Cost of one operation, or None where neither convention counts it.

    Args:
        op: A recorded operation.
        constant: Tells tensors that do not depend on the example input: parameters, buffers, what is made of
        them.
    """
    name = op_name(op)
    rule = _RULES.get(name)
    if rule is None and name.startswith("_scaled_dot_product"):
        rule = _attention
    return None if rule is None else rule(op, constant)


def kernel_size(kernel: Tensor) -> int:
    """Numbers a kernel holds; broadcast axes (stride 0) are not stored and count once."""
    return math.prod(n for n, stride in zip(kernel.shape, kernel.stride(), strict=True) if stride)


def _first(out: Any) -> Tensor:
    first = out if isinstance(out, Tensor) else out[0]
    assert isinstance(first, Tensor)
    return first


def _convolution(op: Op, constant: IsConstant) -> Count:
    x, weight, bias = op.args[:3]
    out = _first(op.out)
    transposed = len(op.args) > 6 and bool(op.args[6])
    positions = x if transposed else out
    madds = positions.numel() * weight[0].numel()
    return Count("conv", madds, 0 if bias is None else out.numel(), out, (weight,))


def _deformable(op: Op, constant: IsConstant) -> Count:
    weight, out = op.args[1], _first(op.out)
    return Count("conv", out.numel() * weight[0].numel(), out.numel(), out, (weight,))


def _product(first: int, bias: bool) -> Callable[[Op, IsConstant], Count]:
    def rule(op: Op, constant: IsConstant) -> Count:
        a, b = op.args[first : first + 2]
        out = _first(op.out)
        madds = a.numel() * (b.shape[-1] if b.dim() > 1 else 1)
        if not (constant(a) or constant(b)):
            return Count("matmul", madds, 0, out)
        extra = out.numel() if bias and constant(op.args[0]) else 0
        return Count("linear", madds, extra, out, (b if constant(b) else a,))

    return rule


def _linear(op: Op, constant: IsConstant) -> Count:
    x, weight = op.args[:2]
    out = _first(op.out)
    bias = len(op.args) > 2 and op.args[2] is not None
    return Count("linear", x.numel() * weight.shape[0], out.numel() if bias else 0, out, (weight,))


def _attention(op: Op, constant: IsConstant) -> Count:
    query, key, value = op.args[:3]
    madds = query.numel() * key.shape[-2] + query[..., 0].numel() * key.shape[-2] * value.shape[-1]
    return Count("matmul", madds, 0, _first(op.out))


def _recurrent(op: Op, constant: IsConstant) -> Count:
    x, weight_in, weight_hidden = op.args[:3]
    steps = x[..., 0].numel()
    madds = steps * (weight_in.numel() + weight_hidden.numel())
    return Count("recurrent", madds, 0, _first(op.out), (weight_in, weight_hidden))


def _norm(op: Op, constant: IsConstant) -> Count:
    out = _first(op.out)
    affine = any(isinstance(a, Tensor) for a in op.args[1:3])
    return Count("norm", 0, out.numel() * (2 if affine else 1), out)


def _activation(op: Op, constant: IsConstant) -> Count:
    out = _first(op.out)
    return Count("activation", 0, out.numel(), out)


def _pool(op: Op, constant: IsConstant) -> Count:
    return Count("pool", 0, op.args[0].numel(), _first(op.out))


def _mean(op: Op, constant: IsConstant) -> Count | None:
    x = op.args[0]
    dims = op.args[1] if len(op.args) > 1 and op.args[1] else ()
    spatial = list(range(2, x.dim()))
    return _pool(op, constant) if spatial and sorted(d % x.dim() for d in dims) == spatial else None


_RULES: dict[str, Callable[[Op, IsConstant], Count | None]] = {
    "convolution": _convolution,
    "deform_conv2d": _deformable,
    "linear": _linear,
    "mm": _product(0, bias=False),
    "mv": _product(0, bias=False),
    "bmm": _product(0, bias=False),
    "addmm": _product(1, bias=True),
    "addmv": _product(1, bias=True),
    "baddbmm": _product(1, bias=True),
    "addbmm": _product(1, bias=True),
    "mkldnn_rnn_layer": _recurrent,
    "mean": _mean,
    **dict.fromkeys(NORMS, _norm),
    **dict.fromkeys(ACTIVATIONS, _activation),
    **dict.fromkeys(POOLS, _pool),
}
