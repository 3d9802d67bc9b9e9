"""Group sparsity as the hinge between filter pruning and decomposition: ranks of convolutions are the channels."""

from __future__ import annotations

import fnmatch
import glob
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from pcshrink.config import MethodConfig
from pcshrink.coupling.groups import Coupling
from pcshrink.errors import ConfigError, NoSitesError
from pcshrink.methods.decomposed import Decomposed, replace_
from pcshrink.methods.filters import Rows, axis_rows
from pcshrink.methods.prepared import mark_, mark_of, unmark_
from pcshrink.methods.proximal import Proximal, ProximalConfig, soft
from pcshrink.proof.discover import discover

CONVOLUTION = nn.modules.conv._ConvNd


@dataclass(frozen=True, kw_only=True)
class HingeConfig(ProximalConfig):
    """Settings of decomposition by group sparsity; ``ratio`` is the share of the ranks that leave without a budget.

    Attributes:
        norm: The penalty on the groups: "l1", or "l1/2", which holds on to large ones more.
    """

    method: ClassVar[str] = "hinge"

    norm: Literal["l1", "l1/2"] = "l1"


class Hinge(Proximal[HingeConfig]):
    """Hinge: every k x k convolution becomes basis filters and their mixture, and proximal steps thin the basis out.

    W (k x k) = A B with the basis B (k x k, a filter for each rank) and the mixture A (1 x 1), by singular values,
    which go into A. The groups are the columns of A: what one basis filter gives to all outputs. After each step of
    the optimizer every group takes a proximal step, for "l1" a <- a max(0, 1 - t / ||a||), for "l1/2" the half
    thresholding a <- 0 where ||a|| <= 54^(1/3) / 4 t^(2/3), else a <- a 2/3 (1 + cos(2/3 (pi - phi))) with
    phi = acos(t / 8 (||a|| / 3)^(-3/2)). t is in proportion to the mean norm of the layer's groups when the phase
    begins, or by now if they have grown (to its 3/2th power for "l1/2", to be free of scale), so that layers are
    balanced. A rank whose group goes
    leaves both convolutions; the widths of norms and residual streams stay.

    Departs from the source in these things. The steps are steered to the budget by the length of the phase instead of
    annealed and stopped (see ``Proximal``). All k x k convolutions without groups are split, also the first, and the
    two of a block need not keep equally many ranks. One learning rate serves all, without balancing the gradients of
    the two factors. The activations stay the network's own (the source makes those within blocks two learned slopes).
    The source also learns from the original network: set ``distill`` in a recipe for that.
    """

    Config: ClassVar[type[MethodConfig]] = HingeConfig
    unit: ClassVar[str] = "rank of a convolution"
    starts_from: ClassVar[str] = "dense weights"
    budget_by: ClassVar[str] = "proximal steps steered to it, then one threshold on the norms"
    needs: ClassVar[tuple[str, ...]] = ("two stages", "pretrained weights", "teacher in the source (off here)")
    reference: ClassVar[str] = (
        "Li et al., Group Sparsity: The Hinge Between Filter Pruning and Decomposition for Network Compression, 2020"
    )

    def __init__(self, config: HingeConfig) -> None:
        super().__init__(config)
        self._columns: dict[str, tuple[Rows, Tensor]] = {}

    def prepare(self, model: nn.Module, example_input: Any) -> nn.Module:
        """Split the convolutions.

        Raises:
            ConfigError: None can be split, with the reasons.
            NoSitesError: A pattern matches none.
        """
        return self._split(model, values=True)

    def rebuild(self, model: nn.Module) -> nn.Module:
        """Split them without their values."""
        return self._split(model, values=False)

    def undo(self, model: nn.Module) -> nn.Module:
        """Join what was split, for its costs."""
        replace_(model, {part: part.composed() for part in model.modules() if isinstance(part, Decomposed)})
        unmark_(model)
        return model

    def _split(self, model: nn.Module, *, values: bool) -> nn.Module:
        if mark_of(model) is not None:
            return model
        convs = {name: part for name, part in model.named_modules() if isinstance(part, CONVOLUTION)}
        reasons = {name: self._why_whole(name, conv) for name, conv in convs.items()}
        chosen = [conv for name, conv in convs.items() if reasons[name] is None and isinstance(conv, nn.Conv2d)]
        if not chosen:
            why = "; ".join(f"{name or 'the network'}: {reason}" for name, reason in list(reasons.items())[:8])
            message = f"method hinge splits k x k convolutions, and there is none that it can split. {why}".rstrip()
            raise ConfigError(message)
        self._check_patterns(list(convs))
        new: dict[nn.Module, nn.Module] = {conv: decompose(conv, values=values) for conv in chosen}
        replace_(model, new)
        mark_(model, self)
        return model

    def _why_whole(self, name: str, conv: nn.Module) -> str | None:
        """Why a convolution is not split; None if it is."""
        if type(conv) is not nn.Conv2d or not name:
            return f"{type(conv).__name__} is not a plain two-dimensional convolution inside a network"
        included = not self.config.include or any(fnmatch.fnmatchcase(name, p) for p in self.config.include)
        wrong = [
            (conv.groups > 1, "a convolution in groups has no common basis"),
            (math.prod(conv.kernel_size) == 1, "a 1 x 1 convolution is a mixture already"),
            (min(conv.weight[0].numel(), conv.out_channels) < 2, "it has one rank only"),
            (conv._forward_hooks or conv._forward_pre_hooks, "hooks on it would be lost"),
            (not included, "not in include"),
            (any(fnmatch.fnmatchcase(name, p) for p in self.config.exclude), "excluded"),
        ]
        return next((reason for holds, reason in wrong if holds), None)

    def _check_patterns(self, names: list[str]) -> None:
        for pattern in (*self.config.include, *self.config.exclude):
            if not fnmatch.filter(names, pattern):
                message = f"the pattern {pattern!r} matches no convolution; they are called {', '.join(names[:6])}, ..."
                raise NoSitesError(message)

    def couple(self, model: nn.Module, example_input: object) -> Coupling:
        """The ranks are the groups; all other channels stay."""
        ranks = tuple(
            glob.escape(f"{name}.basis") for name, part in model.named_modules() if isinstance(part, Decomposed)
        )
        config = replace(self.config, include=ranks, exclude=())
        coupling = discover(model, example_input, config, reads_input=self.Gate.READS_INPUT)
        inner = {f"{name}." for name, part in model.named_modules() if isinstance(part, Decomposed)}
        whole = {name: self._why_whole(name, part) for name, part in model.named_modules()
                 if isinstance(part, CONVOLUTION) and not name.startswith(tuple(inner))}  # fmt: skip
        self.refused = {name: reason for name, reason in whole.items() if reason is not None}
        refused = {
            name: "hinge cuts ranks only" if reason == "not in include" else reason
            for name, reason in coupling.refused.items()
        }
        return replace(coupling, refused=refused)

    def concerns(self) -> list[str]:
        """Convolutions that are not split."""
        return [f"{name} is not split: {reason}" for name, reason in self.refused.items()]

    def on_attach(self, new: set[str]) -> None:
        """Find the columns of the mixtures."""
        parameters = dict(self.model.named_parameters())
        for group in self.coupling.groups:
            name = group.name.removesuffix("basis") + "mix.weight"
            self._columns[group.name] = axis_rows(self.coupling, group, name, 1), parameters[name]

    def scores(self) -> dict[str, Tensor]:
        """The norms of the columns of the mixture: what each rank gives to all outputs."""
        return {name: rows.of(weight).norm(dim=1) for name, (rows, weight) in self._columns.items()}

    def scale_(self, name: str, factor: Tensor) -> None:
        """Multiply the columns."""
        rows, weight = self._columns[name]
        rows.scale_(weight, factor)

    def prox(self, norms: Tensor, step: float, unit: Tensor) -> Tensor:
        """As configured."""
        return soft(norms, step * unit) if self.config.norm == "l1" else half(norms, step * unit**1.5)


def decompose(conv: nn.Conv2d, *, values: bool) -> Decomposed:
    """The two convolutions that stand for one."""
    parts = Decomposed(conv)
    if values:
        parts.factorise_(conv)
    return parts


def half(norms: Tensor, t: Tensor | float) -> Tensor:
    """What the minimiser of (x - a)^2 + t |x|^(1/2) is a multiple of a by, for norms |a|."""
    angle = torch.acos((t / 8 * (norms.clamp(min=1e-30) / 3) ** -1.5).clamp(max=1.0))
    kept = 2 / 3 * (1 + torch.cos(2 / 3 * (math.pi - angle)))
    return torch.where(norms > 54 ** (1 / 3) / 4 * t ** (2 / 3), kept, torch.zeros_like(norms))
