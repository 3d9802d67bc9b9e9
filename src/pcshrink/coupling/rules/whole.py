"""Rules for whole modules, where what a class means says more than the operations inside it.

Classes are known by their full name; a subclass may compute something else. While such a module runs, the walk
skips its operations, so a rule must account for every tensor that goes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from pcshrink.coupling.units import AttributeFix, Channels, Ledger, Value
from pcshrink.graph.derived import DerivedWeight
from pcshrink.graph.model import tensors


@dataclass
class WholeCall:
    """One call of a module as a rule sees it."""

    name: str
    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    ledger: Ledger
    lookup: Callable[[Tensor], Value]


WholeRule = Callable[[WholeCall], Value | None]
WHOLE: dict[str, tuple[WholeRule, Callable[[Any, tuple[Any, ...]], bool]]] = {}


def whole(*names: str, fits: Callable[[Any, tuple[Any, ...]], bool]) -> Callable[[WholeRule], WholeRule]:
    """Register a rule for classes; ``fits`` says whether an instance called with these arguments is covered by it."""

    def register(rule: WholeRule) -> WholeRule:
        for name in names:
            WHOLE[name] = (rule, fits)
        return rule

    return register


def find_whole(module: nn.Module | None, args: tuple[object, ...]) -> WholeRule | None:
    """The rule of a module's very class."""
    rule, fits = WHOLE.get(f"{type(module).__module__}.{type(module).__qualname__}", (None, None))
    return rule if fits is not None and fits(module, args) else None


def derive(ledger: Ledger, parts: Mapping[str, Value], weight: DerivedWeight) -> Value:
    """A computed weight has the axes of the tensor it is made of; what goes into it is cut along.

    Norms over axes that lose channels are put right when the cut is made, so that the weights that stay are the same.
    """
    raw = parts[weight.raw]
    why = f"{weight.kind} of fixed width in {weight.place!r}"
    if weight.axis is not None and (rows := raw.at(weight.axis)) is not None:
        for name in (weight.gain, weight.left):
            own = parts[name].axes if name else {}
            for beside in own.values():
                ledger.tie(rows.units, beside.units, why)
    if weight.right and weight.axis is not None and (right := parts[weight.right].at(0)) is not None:
        others = [a for a in range(len(raw.shape)) if a != weight.axis % len(raw.shape)]
        layout = right.units.reshape([raw.shape[a] for a in others])
        for position, axis in enumerate(others):
            if (channels := raw.at(axis)) is not None and axis < 2:  # a kernel's own extent never shrinks
                pattern = [-1 if i == position else 1 for i in range(len(others))]
                ledger.tie(np.broadcast_to(channels.units.reshape(pattern), layout.shape), layout, why)
    return Value(raw.shape, dict(raw.axes))


def _takes_features(module: Any, args: tuple[Any, ...]) -> bool:
    own = all(name in module._parameters for name in _input_weights(module))
    return bool(own and args and isinstance(args[0], (Tensor, PackedSequence)))


def _input_weights(module: Any) -> list[str]:
    if isinstance(module, nn.RNNCellBase):
        return ["weight_ih"]
    return ["weight_ih_l0", "weight_ih_l0_reverse"] if module.bidirectional else ["weight_ih_l0"]


@whole("torch.nn.modules.rnn.LSTM", "torch.nn.modules.rnn.GRU", "torch.nn.modules.rnn.RNN",
       "torch.nn.modules.rnn.LSTMCell", "torch.nn.modules.rnn.GRUCell", "torch.nn.modules.rnn.RNNCell",
       fits=_takes_features)  # fmt: skip
def recurrent(call: WholeCall) -> None:
    """The columns that read the input can leave; the state stays as wide as it is."""
    first = call.args[0]
    data = first.data if isinstance(first, PackedSequence) else first
    for tensor in tensors((call.args[1:], call.kwargs)):
        for channels in call.lookup(tensor).axes.values():
            call.ledger.pin(channels.units, f"{call.name!r} starts from them as its state")
    x = call.lookup(data)
    for axis, channels in x.axes.items():
        if axis != len(x.shape) - 1:
            call.ledger.pin(channels.units, f"{call.name!r} runs over a channel axis")
    columns = [call.lookup(call.module._parameters[name]).at(1) for name in _input_weights(call.module)]
    known = [c for c in columns if c is not None]
    if (features := x.at(-1)) is None:
        for own in known:
            call.ledger.pin(own.units, f"{call.name!r} reads a tensor of fixed width")
        return
    for own in known:
        call.ledger.tie(features.units, own.units, f"{call.name!r} reads a tensor of fixed width")
    call.ledger.require_zero(features, repr(call.name))
    call.ledger.readers[call.name] = features.units
    call.ledger.fixes.append(AttributeFix(call.name, "input_size", features.units))


@whole("timm.layers.grn.GlobalResponseNorm", fits=lambda module, args: bool(args) and isinstance(args[0], Tensor))
def response_norm(call: WholeCall) -> Value:
    """Every channel is divided by the mean over all: with dead channels zero, only their number has to be put right.

    ``x / (sum / C + eps)`` is ``C'/C`` of what it was when ``C'`` channels are left and eps grows by ``C / C'``; the
    scale is corrected when the cut is made.
    """
    x, axis = call.lookup(call.args[0]), call.module.channel_dim
    axes: dict[int, Channels] = {}
    for place, channels in x.axes.items():
        if place != axis % len(x.shape):
            call.ledger.pin(channels.units, f"{call.name!r} takes norms over a channel axis")
            continue
        call.ledger.require_zero(channels, repr(call.name))
        for parameter in (call.module.weight, call.module.bias):
            if (own := call.lookup(parameter).at(0)) is not None:
                call.ledger.tie(channels.units, own.units, f"{call.name!r} of a tensor of fixed width")
        eps = call.module.eps * len(channels.units)
        call.ledger.fixes.append(AttributeFix(call.name, "eps", channels.units, shared=eps))
        axes[place] = channels.broken(f"{call.name!r} adds a bias")
    return Value(x.shape, axes, x.origin)


def _refuse(call: WholeCall) -> Value:
    for channels in call.lookup(call.args[0]).axes.values():
        call.ledger.pin(channels.units, f"{call.name!r} divides by the mean over all channels, with an eps in its code")
    return Value(tuple(call.out.shape))


whole(
    "transformers.models.convnextv2.modeling_convnextv2.ConvNextV2GRN",
    fits=lambda module, args: bool(args) and isinstance(args[0], Tensor),
)(_refuse)
