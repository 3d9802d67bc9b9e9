"""Differentiable meta pruning: weights from latent vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from pcshrink.config import MethodConfig
from pcshrink.coupling.groups import ChannelGroup, Coupling
from pcshrink.coupling.units import Ids
from pcshrink.errors import ConfigError
from pcshrink.methods.filters import Filters
from pcshrink.methods.hypernet import Hypernet
from pcshrink.methods.proximal import Proximal, ProximalConfig, soft
from pcshrink.surgery.generated import bake_, find_generated, unplug_

SMALLEST = 0.1  # of the latent entries that a given network starts with: weights are multiples of their inverse
IDLE = "no plain convolution, whose weight dhp could make, writes or reads it"


@dataclass(frozen=True, kw_only=True)
class DHPConfig(ProximalConfig):
    """Settings of pruning by latent vectors; ``ratio`` is the share of the channels that leave without a budget.

    Attributes:
        start: The network that the hypernetworks give at first: the one that there is ("weights"), or one drawn as in
            the source ("scratch").
        embedding: The source's m: into how many numbers a pair of latent entries is embedded.
    """

    method: ClassVar[str] = "dhp"

    start: Literal["weights", "scratch"] = "weights"
    embedding: int = 8

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check_counts("embedding")


class HyperPruning(Proximal[DHPConfig]):
    """DHP: hypernetworks make the weights from a latent vector for each group, and proximal steps thin these out.

    Every plain convolution gets a hypernetwork with parameters of its own for each pair of channels: Z = z_out z_in' +
    B0, E_oi = Z_oi w1_oi + b1_oi in R^m, and the kernel from input i to output o is W2_oi E_oi + b2_oi. A group has one
    latent vector z, shared by all that write and read it; channels in no group have latent entries that nothing
    shrinks. All of it is trained by the task. After each step z <- sign(z) max(|z| - t, 0); t is in proportion to the
    mean |z| of the group. When the phase ends, the smallest |z| leave, the hypernetworks give their weights a last time
    and are gone.

    Departs from the source in these things. It starts from the weights there are (``start``): the hypernetworks give
    exactly these, and z has the sizes that normal numbers have, in the order of the filters' norms; the source starts
    from nothing, z being normal. The steps are steered to the budget by the length of the phase instead of stopped near
    it, and what goes is brought to zero before it is cut (see ``Proximal``). All groups shrink, also the one that feeds
    the classifier. Weight decay spares latent vectors, as it does all vectors. Convolutions in groups and other layers
    keep plain weights; they lose the channels that the latent vectors of their group let go.

    Attributes:
        latents: Group -> its latent vector; empty when the weights are plain again.
    """

    Config: ClassVar[type[MethodConfig]] = DHPConfig
    unit: ClassVar[str] = "channel of a group"
    starts_from: ClassVar[str] = "scratch (here also dense weights)"
    budget_by: ClassVar[str] = "proximal steps steered to it, then one threshold on the latent entries"
    needs: ClassVar[tuple[str, ...]] = ("two stages",)
    reference: ClassVar[str] = "Li et al., DHP: Differentiable Meta Pruning via HyperNetworks, 2020"

    def __init__(self, config: DHPConfig) -> None:
        super().__init__(config)
        self.latents: dict[str, nn.Parameter] = {}
        self._filters: dict[str, Filters] = {}
        self._idle: list[str] = []

    def couple(self, model: nn.Module, example_input: object) -> Coupling:
        """Find the groups; those that no plain convolution writes or reads stay whole.

        Raises:
            ConfigError: There are no others.
        """
        coupling = super().couple(model, example_input)
        plain = {name for name, part in model.named_modules() if _is_plain(part)}
        idle = [g.name for g in coupling.groups if not plain & {*g.writers, *g.readers}]
        if len(idle) == len(coupling.groups):
            message = (
                "method dhp makes the weights of plain two-dimensional convolutions, and none of these writes or reads "
                f"a group of this network; the groups are {', '.join(idle[:8])}"
            )
            raise ConfigError(message)
        self._idle = idle
        return coupling.without(idle, IDLE)

    def concerns(self) -> list[str]:
        """Groups that stay whole."""
        return [f"group {name} stays whole: {IDLE}" for name in self._idle]

    def on_attach(self, new: set[str]) -> None:
        """Put the hypernetworks on; those that are there already are kept.

        Raises:
            ConfigError: A layer has no plain weight.
        """
        present = find_generated(self.model)
        if not present:
            self._filters = {g.name: self._filters_of(g) for g in self.coupling.groups}
            with torch.random.fork_rng(devices=[]):  # the user's own draws stay as they would be without
                self.latents = {name: self._first(filters) for name, filters in self._filters.items()}
                self._generate()
            return
        for part in present.values():
            if isinstance(part, Hypernet):
                self.latents |= dict(zip(part.groups, part.shared, strict=True))
        self.latents = {group.name: self.latents[group.name] for group in self.groups}

    def _filters_of(self, group: ChannelGroup) -> Filters:
        return Filters(self.model, self.coupling, group, self.config.method)

    def _first(self, filters: Filters) -> nn.Parameter:
        norms = filters.matrix().norm(dim=1)
        normal = torch.randn_like(norms) if self.config.start == "scratch" else half_normal(norms)
        return nn.Parameter(normal)

    def _generate(self) -> None:
        for name, conv in self.model.named_modules():
            if not _is_plain(conv):
                continue
            inputs, outputs = self._places(name, conv)
            if (inputs < 0).all() and (outputs < 0).all():
                continue  # it has nothing to do with any group
            hypernet = Hypernet(conv, self.latents, inputs, outputs, self.config.embedding)
            if self.config.start == "scratch":
                hypernet.draw_()
            else:
                hypernet.start_at_(conv.weight)
            hypernet.connect(conv)

    def _places(self, name: str, conv: nn.Conv2d) -> tuple[Ids, Ids]:
        """Where the latent entries of the input and output channels are, all groups in a row; -1: in none."""
        ledger, root = self.coupling.ledger, self.coupling.root
        number = np.full(ledger.count, -1)
        number[np.concatenate([g.roots for g in self.coupling.groups])] = np.arange(
            sum(map(len, self.latents.values()))
        )
        sides = []
        for units, channels in (
            (ledger.readers.get(name), conv.in_channels),
            (ledger.writers.get(name), conv.out_channels),
        ):
            fits = units is not None and len(units) == channels  # not so if it is called on several tensors
            sides.append(number[root[units]] if fits else np.full(channels, -1))
        return sides[0], sides[1]

    def scores(self) -> dict[str, Tensor]:
        """The sizes of the latent entries; of the filters when there are none any more."""
        if self.latents:
            return {name: latent.detach().abs() for name, latent in self.latents.items()}
        return {name: filters.matrix().norm(dim=1) for name, filters in self._filters.items()}

    @torch.no_grad()
    def scale_(self, name: str, factor: Tensor) -> None:
        """Multiply the latent entries; filters are left alone."""
        if self.latents:
            self.latents[name].mul_(factor)

    def prox(self, norms: Tensor, step: float, unit: Tensor) -> Tensor:
        """Soft thresholding."""
        return soft(norms, step * unit)

    def finish(self) -> bool:
        """Make the weights plain; they are trained from now on."""
        bake_(self.model)
        self._become_plain()
        return True

    def _become_plain(self) -> None:
        self.latents = {}
        self._filters = {g.name: self._filters_of(g) for g in self.coupling.groups}

    def state_dict(self) -> dict[str, Any]:
        """Whether the weights are plain by now."""
        return super().state_dict() | {"plain": not self.latents}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        if state["plain"]:
            unplug_(self.model)
            self._become_plain()
        super().load_state_dict(state)


def _is_plain(part: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a convolution whose weight can be made: its own, trained, for all pairs of channels."""
    if type(part) is not nn.Conv2d or part.groups != 1:
        return False
    made = any(isinstance(child, Hypernet) for child in part.children())
    weight = part._parameters.get("weight")
    return made or (weight is not None and weight.requires_grad and "forward" not in vars(part))


def half_normal(norms: Tensor) -> Tensor:
    """The sizes that so many normal numbers have in the mean, in the order of the norms (C,)."""
    rank = norms.argsort(stable=True).argsort(stable=True).double()
    quantile: Tensor = torch.special.ndtri((1 + (rank + 0.5) / len(norms)) / 2)
    return quantile.to(norms).clamp(min=SMALLEST)
