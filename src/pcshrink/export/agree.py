"""What every export shares: inputs to compare on, the comparison, and what is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pcshrink.errors import ConfigError, VerificationError
from pcshrink.export.fold_norms import fold_norms
from pcshrink.graph.examples import check_values
from pcshrink.graph.model import check_finite, evaluation, run, tensors
from pcshrink.proof.verify import difference

Batch = int | Literal["dynamic"] | None
INPUTS = 256
TOLERANCE = 1e-4
# Two classes closer than this share of the largest output are a tie that rounding may decide either way.
TIE = 1e-5


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """What was written, and how well it agrees.

    Attributes:
        path: The file.
        format: The name of the format, for example ``onnx``.
        exporter: What made it; for ONNX ``dynamo`` or ``legacy``.
        inputs: Number of inputs it was compared on.
        difference: Largest difference of any output, relative to the largest output.
        top1_equal: Share of the inputs with the same largest class; 1.0, or there is no file.
        norm_error: Relative difference that folding the norms into the layers made, before any export.
        bytes: Size of the file (with its weights).
    """

    path: Path
    format: str
    exporter: str
    inputs: int
    difference: float
    top1_equal: float
    norm_error: float
    bytes: int

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.path}: {self.bytes / 1e6:.2f} MB by {self.exporter}; agrees on {self.inputs} inputs to "
            f"{self.difference:.1e} with the same top-1 (folding norms: {self.norm_error:.1e})"
        )


def prepare(model: nn.Module, example_input: Any, batch: Batch) -> tuple[nn.Module, Any, float]:
    """A copy ready to export (norms folded, evaluation mode), an example of the right size, the error."""
    if not (batch is None or batch == "dynamic" or (type(batch) is int and batch >= 1)):
        message = f'batch must be a whole number of at least 1, "dynamic" or None, got {batch!r}'
        raise ConfigError(message)
    check_values(example_input)
    check_finite(model)
    ready, error = fold_norms(model, example_input)
    ready.eval().requires_grad_(False)
    count = next((len(t) for t in tensors(example_input) if t.ndim), 1)
    if batch is not None:
        # With a single sample an exporter takes the batch size for a constant.
        count = max(count, 2) if batch == "dynamic" else batch
        example_input = resize(example_input, count)
    return ready, example_input, error


def resize(example_input: object, count: int) -> Any:
    """The same example with another number of samples."""

    def one(leaf: object) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.ndim:
            return leaf
        times = -(-count // len(leaf))
        return leaf.repeat(times, *[1] * (leaf.ndim - 1))[:count].contiguous()

    return tree_map(one, example_input)


def draw(example_input: object, seed: int) -> Any:
    """Random inputs like the example: floats of its mean and spread, whole numbers of its range."""
    generator = torch.Generator().manual_seed(seed)

    def one(leaf: object) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if leaf.is_floating_point():
            wide = leaf.double()
            spread = float(wide.std()) if wide.numel() > 1 else 1.0
            noise = torch.randn(leaf.shape, generator=generator, dtype=torch.float64)
            return (noise * (spread or 1.0) + float(wide.mean())).to(leaf)
        if leaf.dtype is torch.bool or not leaf.numel():
            return leaf
        low, high = int(leaf.min()), int(leaf.max())
        return torch.randint(low, high + 1, leaf.shape, generator=generator).to(leaf)

    return tree_map(one, example_input)


def agree(
    model: nn.Module, other: Callable[[list[Tensor]], list[Tensor]], example_input: object, batch: Batch
) -> tuple[int, float, float]:
    """Compare an exported model with its origin on 256 random inputs.

    Args:
        model: The model as it was before export and before its norms were folded.
        other: The exported model: input tensors to output tensors.
        example_input: An example of the exported batch size.
        batch: "dynamic" also tries other batch sizes.

    Returns:
        Number of inputs, largest relative difference, share with the same top-1.

    Raises:
        VerificationError: They do not agree.
    """
    count = next((len(t) for t in tensors(example_input) if t.ndim), 1)
    sizes = [1, 3, 28, *[32] * 7] if batch == "dynamic" else [count] * -(-INPUTS // count)
    worst, same = 0.0, 0
    for seed, size in enumerate(sizes):
        inputs = draw(resize(example_input, size), seed)
        with evaluation(model):
            expected = [t.detach() for t in tensors(run(model, inputs))]
        got = other(tensors(inputs))
        worst = max(worst, difference(expected, got))
        same += _same_top(expected, got) if worst <= TOLERANCE else 0
    share = same / sum(sizes)
    if worst > TOLERANCE or share < 1.0:
        message = (
            f"the exported model does not agree: largest relative difference {worst:.3g} (allowed "
            f"{TOLERANCE:.0e}), same top-1 on {share:.1%} of {sum(sizes)} inputs"
        )
        raise VerificationError(message)
    return sum(sizes), worst, share


def _same_top(expected: list[Tensor], got: list[Tensor]) -> int:
    """How many samples have the same largest entry; outputs without classes count as the same."""
    first, other = expected[0], got[0]
    if first.ndim < 2 or first.shape[1] < 2 or not first.is_floating_point():
        return len(first) if first.ndim else 1
    chosen = first.gather(1, other.argmax(1, keepdim=True))
    best = first.max(1, keepdim=True).values
    right = (best - chosen <= TIE * float(first.abs().max())).flatten(1)
    return int(right.all(1).sum())
