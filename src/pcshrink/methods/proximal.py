"""What methods share that carry the norms of groups to zero by proximal steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from pcshrink.config import MethodConfig
from pcshrink.methods.base import Target
from pcshrink.methods.choosing import Choosing, still
from pcshrink.methods.landing import LAND_AT, opening, wanted
from pcshrink.methods.select import lowest

LOOKS = 200  # how often in a phase the budget is looked at
AHEAD = 0.05  # share of the phase in which a norm is carried to zero


@dataclass(frozen=True, kw_only=True)
class ProximalConfig(MethodConfig):
    """What all proximal methods share.

    Attributes:
        strength: How large the steps are: with a budget as a multiple of what carries norms that nothing holds to zero
            in time; without one, how far such a norm is carried over the phase, in mean norms of its group.
        least: Share of every group that stays at least, unless the budget asks for less.
    """

    strength: float = 1.0
    least: float = 0.2

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check_positive("strength")
        self.check_shares("least")


P = TypeVar("P", bound=ProximalConfig)


class Proximal(Choosing[P]):
    """Base of methods that take a proximal step on the norm of every channel after each step of the optimizer.

    The sources take steps of one size and stop when so many norms are at zero that the budget is nearly met. Here the
    phase has a length. The cost is to fall smoothly to the budget until three quarters of it, so it is known which
    norms, by one threshold on all of them as shares of their group's mean, are to be at zero a little later: the steps
    are of the size that carries them there. Then the channels that go are fixed by the same threshold, what is left of
    them is brought to zero, and the others are let go.

    Attributes:
        units: Group name -> the mean norm with which it began.
        first: Group name -> the norms with which it began.
        pace: The size of a step, as a share of the mean norm of a group.
        going: The channels that were chosen to go, with the norms they had then; None before.
    """

    def __init__(self, config: P) -> None:
        super().__init__(config)
        self.units: dict[str, float] = {}
        self.first: dict[str, Tensor] = {}
        self.pace = 0.0
        self.target: Target | None = None
        self.going: dict[str, Tensor] | None = None
        self._former: dict[str, Tensor] = {}

    def scale_(self, name: str, factor: Tensor) -> None:
        """Multiply the norms of a group's channels by a factor (C,)."""
        raise NotImplementedError

    def prox(self, norms: Tensor, step: float, unit: Tensor) -> Tensor:
        """What a proximal step multiplies the norms (C,) by; ``step`` is a share of ``unit``, the group's mean norm."""
        raise NotImplementedError

    @property
    def holds(self) -> bool:
        """Nothing is settled when the phase begins."""
        return False

    def set_target(self, target: Target) -> None:
        """Let the cost fall to a budget; until the widths are known, the same share of every group is aimed at."""
        self.target = target
        if not self.steps:
            self.aim(target.widths())

    def start(self) -> None:
        """Measure what the groups begin with."""
        self.first = {name: norms.detach().cpu().clone() for name, norms in self.scores().items()}
        self.units = {name: max(float(norms.mean()), 1e-12) for name, norms in self.first.items()}

    def unit_of(self, name: str, norms: Tensor) -> Tensor:
        """The mean norm of a group: as it began, or as it is now where it has grown.

        Behind a norm layer the scale of a weight is of no account, and it grows with every large step.
        """
        return norms.mean().clamp(min=self.units[name])

    def relative(self) -> dict[str, Tensor]:
        """The norms as shares of the mean of their group."""
        return {name: (norms / self.unit_of(name, norms)).cpu() for name, norms in self.scores().items()}

    def after_step(self, *, pushing: bool = True) -> None:
        """Take the proximal step, and when the time has come bring what was chosen to zero."""
        super().after_step(pushing=pushing)
        if not pushing or self.held is not None:
            return
        if not self.units:
            self.start()
        if self.going is None:
            self._push()
            if self.progress >= LAND_AT:
                self._land()
        else:
            self._close(self.going)

    def _push(self) -> None:
        if (self.steps - 1) % max(self.config.total_steps // LOOKS, 1) == 0:
            self.pace = self.config.strength * self._needed() / self.config.total_steps
        for name, norms in self.scores().items():
            self.scale_(name, self.prox(norms, self.pace, self.unit_of(name, norms)))

    def _needed(self) -> float:
        """How far norms should be carried if it went on like this for the whole phase."""
        if self.target is None:
            return 1.0
        whole = self.target.cost({})
        allowed = whole + (self.target.limit - whole) * wanted(self.progress + AHEAD)
        threshold = self._threshold(self.target, self.relative(), allowed)
        # Steps in proportion to the way that is left would never arrive.
        return max(threshold / AHEAD, 1.0) if threshold else 0.0

    def _threshold(self, target: Target, norms: Mapping[str, Tensor], allowed: float) -> float:
        """The norm below which channels must go to keep to a cost; 0 if none need to."""
        every = torch.cat(list(norms.values())).sort(descending=True).values
        if target.cost(self._above(norms, 1.0)) <= allowed:
            return 0.0
        low, high = 0, len(every)
        while high - low > 1:
            middle = (low + high) // 2
            if target.cost(self._above(norms, middle / len(every))) <= allowed:
                low = middle
            else:
                high = middle
        return float(every[min(low + 1, len(every) - 1)])

    def _above(self, norms: Mapping[str, Tensor], share: float) -> dict[str, float]:
        """How many norms of each group are among the largest of all, a share of them, zeros not counted.

        The least share that a group keeps falls with it, where the budget asks for so little.
        """
        every = torch.cat(list(norms.values())).sort(descending=True).values
        threshold = float(every[min(int(share * len(every)), len(every) - 1)])
        least = min(self.config.least, share)
        counts = {name: float(((part >= threshold) & (part > 0)).sum()) for name, part in norms.items()}
        return {name: max(count, least * len(norms[name])) for name, count in counts.items()}

    def _land(self) -> None:
        """Choose what goes."""
        if self.target is not None:
            self._share_out(self.target)
        self._former = {name: norms.detach().clone() for name, norms in self.scores().items()}
        self.going = {g.name: lowest(self._former[g.name], g.k).cpu() for g in self.groups}

    def _share_out(self, target: Target) -> None:
        """Aim at what one threshold on all norms leaves within the budget; norms that are level go by their first."""
        began = {name: norms / self.units[name] for name, norms in self.first.items()}
        norms = {name: part + 1e-6 * began[name] for name, part in self.relative().items()}
        widths = target.widest(lambda share: self._above(norms, share))
        # Where all norms are the same no threshold divides them.
        self.aim(widths if target.cost(widths) <= target.limit else target.widths())

    def _close(self, going: Mapping[str, Tensor]) -> None:
        """Bring what was chosen down to zero, then close its gates."""
        factor = opening(self.progress)
        for name, norms in self.scores().items():
            chosen = going[name].to(norms.device)
            largest = torch.where(chosen, factor * self._former[name].to(norms), norms)
            self.scale_(name, torch.where(norms > largest, largest / norms.clamp(min=1e-30), torch.ones_like(norms)))
        if factor == 0:
            self._hold(dict(going))

    def after_epoch(self, progress: float) -> None:
        """Have chosen and closed by the end of the phase, however many steps were skipped."""
        if progress < 1 or self.held is not None:
            return
        if not self.units:
            self.start()
        if self.going is None:
            self._land()
        self.steps = max(self.steps, self.config.total_steps)
        self._close(self.going or {})

    def selected(self) -> dict[str, Tensor]:
        """What was chosen, or what would be by now."""
        return super().selected() if self.going is None or self.held is not None else self.going

    def figures(self) -> dict[str, float]:
        """How far norms would be carried in a phase of such steps, and the mean norm that is left of the first."""
        if not self.units:
            return {}
        left = [norms.cpu() / self.units[name] for name, norms in self.scores().items()]
        return {"pace": self.pace * self.config.total_steps, "norm_left": float(torch.cat(left).mean())}

    def state_dict(self) -> dict[str, Any]:
        """Norms, the size of steps, and what was chosen."""
        going = None if self.going is None else {name: flags.tolist() for name, flags in self.going.items()}
        norms = {"first": self.first, "former": self._former}
        own = {key: {name: part.tolist() for name, part in of.items()} for key, of in norms.items()}
        return super().state_dict() | own | {"units": self.units, "pace": self.pace, "going": going}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; what was to go may have been cut since."""
        self.units = {name: float(unit) for name, unit in state["units"].items()}
        self.pace = float(state["pace"])
        super().load_state_dict(state)
        scores = self.scores()
        self.first = {name: torch.tensor(norms).to(scores[name].dtype) for name, norms in state["first"].items()
                      if name in scores}  # fmt: skip
        if state["going"] is not None:
            self.going = {g.name: still(state["going"].get(g.name, []), g.channels) for g in self.groups}
            self._former = {}
            for name, norms in scores.items():
                former = state["former"].get(name, [])
                self._former[name] = torch.tensor(former).to(norms) if len(former) == len(norms) else norms


def soft(norms: Tensor, t: Tensor | float) -> Tensor:
    """What the minimiser of (x - a)^2 / 2 + t |x| is a multiple of a by, for norms |a|."""
    return (1 - t / norms.clamp(min=1e-30)).clamp(min=0.0)
