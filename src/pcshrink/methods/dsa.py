"""Differentiable sparsity allocation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pcshrink.config import MethodConfig, is_number
from pcshrink.errors import ConfigError
from pcshrink.methods.base import Method, Step, Target
from pcshrink.methods.choosing import still
from pcshrink.methods.filters import Filters, Rows, norm_scale
from pcshrink.methods.keep_ratio import chances, project, ratio_gradient, shares
from pcshrink.methods.landing import CLOSE_FROM, wanted
from pcshrink.methods.processes import mean_over_processes
from pcshrink.methods.select import lowest
from pcshrink.surgery.gate import Gate

START = 5.0  # theta of every group: a keep ratio of 0.993
SMOOTHING = 0.1  # weight of the newest batch in the mean gradient
FAR = 30.0  # in theta, from half of a group to all or nothing of it


class DrawnGate(Gate, kind="drawn", mask_only=True):
    """Lets a drawn choice of channels pass while training, and what the mask keeps else.

    Attributes:
        drawn: The choice, with a gradient; None: as without a draw.
    """

    drawn: Tensor | None = None

    def factor(self, x: Tensor) -> Tensor | None:
        """What was drawn, or the mask."""
        return self.drawn if self.training and self.drawn is not None else super().factor(x)


@dataclass(frozen=True, kw_only=True)
class DSAConfig(MethodConfig):
    """Settings of differentiable allocation; it wants a budget, so ``ratio`` has no effect.

    Attributes:
        reach: How far the task may carry a keep ratio over the whole phase, in units of theta.
        sharpness: The exponent beta_2 that the phase ends with; it starts at 1.
        draw: Which random masks; the same number draws the same ones.
    """

    method: ClassVar[str] = "dsa"

    reach: float = 10.0
    sharpness: float = 100.0
    draw: int = 0

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check_positive("reach")
        fine = is_number(self.sharpness) and self.sharpness >= 1
        self.check(fine, "sharpness", self.sharpness, "a number of at least 1")
        self.check(type(self.draw) is int and self.draw >= 0, "draw", self.draw, "a whole number of at least 0")


class Allocation(Method[DSAConfig]):
    """DSA: every group has a keep ratio that the task's own gradient trains while the cost falls to the budget.

    The ratio of a group is alpha = sigmoid(theta), theta starting at 5. A channel with score b_i is kept with
    probability p_i = min(1, 0.01 + s_i), s_i = 1 / (1 + (b_i / beta_1) ^ -beta_2), where beta_1 is solved so that the
    mean of p is alpha, and beta_2 grows from 1 to ``sharpness`` in equal ratios. Masks m_i ~ Bernoulli(p_i) multiply
    what the gates of the group pass. Their gradients are taken as those of p (straight through), and by implicit
    differentiation dL/dalpha = C * sum_i dL/dp_i q_i / sum_j q_j with q = s (1 - s). b_i is the size of the scale of
    the group's first norm, or the L1 norm of its first writer's filter where no gate sits on a norm.

    The training code of the source was never released. Here theta takes a step down the task's gradient after each
    step of the weights, on the same batch (the source holds some data out). Then it is projected along the gradient of
    the cost on what the network may cost by now, which falls evenly to the budget until three quarters of the phase
    and then stays; the length of that projection is what the source has a dual variable for. Gradients are averaged
    over some steps and divided by their mean size, so that ``reach`` means the same for any network and phase. In the
    end the likeliest channels stay; the source draws them. They are fixed when 85 % of the phase are over: the task may
    have carried the ratios below the budget, and what the budget lets back in then has some steps to adapt.

    Attributes:
        theta: The keep ratios before the sigmoid, in the order of the groups.
        target: What the cost falls to.
        landed: The channels that go (group name -> flags), once that is settled; None before.
    """

    Config: ClassVar[type[MethodConfig]] = DSAConfig
    Gate: ClassVar[type[Gate]] = DrawnGate
    needs_budget: ClassVar[bool] = True
    unit: ClassVar[str] = "channel of a group"
    starts_from: ClassVar[str] = "scratch, or dense weights"
    budget_by: ClassVar[str] = "keep ratios, trained under a cost that falls to it"
    needs: ClassVar[tuple[str, ...]] = ("two stages",)
    reference: ClassVar[str] = (
        "Ning et al., DSA: More Efficient Budgeted Pruning via Differentiable Sparsity Allocation, 2020"
    )

    def __init__(self, config: DSAConfig) -> None:
        super().__init__(config)
        self.theta = torch.zeros(0, dtype=torch.float64)
        self.target: Target | None = None
        self.landed: dict[str, Tensor] | None = None
        self._gradient, self._size = self.theta, 0.0
        self._unit_of: dict[str, Tensor] = {}
        self._score_of: list[tuple[Rows, Tensor]] = []
        self._scale = torch.zeros((), requires_grad=True)

    @property
    def drawn_gates(self) -> dict[str, DrawnGate]:
        """The gates by layer."""
        return {name: gate for name, gate in self.gates.items() if isinstance(gate, DrawnGate)}

    def on_attach(self, new: set[str]) -> None:
        """Line the channels up, and find what they are scored by.

        Raises:
            ConfigError: A group has neither a norm nor a plain weight to score it by.
        """
        self.theta = torch.full((len(self.groups),), START, dtype=torch.float64)
        self._gradient = torch.zeros_like(self.theta)
        number = torch.full((self.coupling.ledger.count,), -1)
        number[torch.cat([torch.as_tensor(g.roots) for g in self.coupling.groups])] = torch.arange(sum(self._sizes))
        root = torch.as_tensor(self.coupling.root)
        self._unit_of = {site.module: number[root[torch.as_tensor(entry.own)]] for site, entry in self.sites.items()}
        tensors = dict(self.model.named_parameters())
        for group in self.coupling.groups:
            rows = norm_scale(self.model, self.coupling, group)
            rows = rows or Filters(self.model, self.coupling, group, self.config.method).weights[0]
            self._score_of.append((rows, tensors[rows.name]))

    @property
    def _sizes(self) -> list[int]:
        return [g.channels for g in self.groups]

    @property
    def _real(self) -> Tensor:
        """Which entries of the groups' channels, filled up to the same length, are channels (G, C)."""
        return pad_sequence([torch.ones(size, dtype=torch.bool) for size in self._sizes], batch_first=True)

    def scores(self) -> dict[str, Tensor]:
        """b: the size of the first norm's scale, or the L1 norm of the first writer's filter."""
        each = (rows.of(tensor).abs().sum(1) for rows, tensor in self._score_of)
        return {group.name: score for group, score in zip(self.groups, each, strict=True)}

    def set_target(self, target: Target) -> None:
        """Let the cost fall to a budget; until the widths are known, the same share of every group is aimed at."""
        self.target = target
        if not self.steps:
            self.aim(target.widths())

    @property
    def sharpness(self) -> float:
        """beta_2 by now."""
        return float(self.config.sharpness ** min(self.progress / CLOSE_FROM, 1.0))

    def kept(self, theta: Tensor) -> dict[str, float]:
        """How many channels the groups keep in the mean, never too few."""
        each = zip(self.groups, theta.sigmoid().tolist(), strict=True)
        return {g.name: max(alpha * g.channels, min(self.config.min_channels, g.channels)) for g, alpha in each}

    def start(self) -> None:
        """Draw the first masks."""
        self._draw()

    def loss(self, step: Step | None = None) -> Tensor:
        """Zero, with a gradient of 1: what that becomes in the backward pass is what the loss was multiplied by."""
        device = next(iter(self.gates.values())).mask.device
        if self._scale.device != device:
            self._scale = torch.zeros((), device=device, requires_grad=True)
        return self._scale - self._scale.detach()

    def after_step(self, *, pushing: bool = True) -> None:
        """Train the keep ratios, keep to what the cost may be by now, draw again.

        Raises:
            ConfigError: There is no budget.
        """
        super().after_step(pushing=pushing)
        gradient = self._take_gradient()
        if not pushing or self.landed is not None:
            return
        if self.target is None:
            message = "method dsa shares out what a budget leaves, and there is none; call method.set_target() first"
            raise ConfigError(message)
        if gradient is not None:
            self._train(gradient)
        self._project(self.target)
        if self.progress < CLOSE_FROM:
            self._draw()
        else:
            self._land(self.target)

    def _take_gradient(self) -> Tensor | None:
        """dL/dtheta of the newest step, the same in all processes; None if there was no backward pass."""
        seen = [(self._unit_of[name], gate.drawn.grad) for name, gate in self.drawn_gates.items()
                if gate.drawn is not None and gate.drawn.grad is not None]  # fmt: skip
        scale = 1.0 if self._scale.grad is None else float(self._scale.grad)
        self.forget_pass()
        if not seen:
            return None
        total = torch.zeros(sum(self._sizes), dtype=torch.float64)
        for units, grad in seen:
            total.index_add_(0, units[units >= 0], grad.double().cpu()[units >= 0] / scale)
        mean_over_processes(total)
        alpha = self.theta.sigmoid()
        by_mask = pad_sequence(list(total.split(self._sizes)), batch_first=True)
        return ratio_gradient(by_mask, self._shares(), self._real) * alpha * (1 - alpha)

    def forget_pass(self) -> None:
        """Drop the gradients."""
        self._scale.grad = None
        for gate in self.drawn_gates.values():
            if gate.drawn is not None:
                gate.drawn.grad = None

    def _train(self, gradient: Tensor) -> None:
        if not bool(gradient.isfinite().all()):
            return
        self._gradient = torch.lerp(self._gradient, gradient, SMOOTHING)
        self._size += SMOOTHING * (float(gradient.square().mean().sqrt()) - self._size)
        if self._size > 0:
            self.theta = self.theta - self.config.reach / self.config.total_steps * self._gradient / self._size

    def _project(self, target: Target) -> None:
        whole = target.cost({})
        allowed = whole + (target.limit - whole) * wanted(self.progress)
        self.theta = project(self.theta, lambda theta: target.cost(self.kept(theta)), allowed)

    def _shares(self) -> Tensor:
        scores = pad_sequence([score.double().cpu() for score in self.scores().values()], batch_first=True)
        return shares(scores, self._real, self.theta.sigmoid(), self.sharpness)

    def _draw(self) -> None:
        generator = torch.Generator().manual_seed(self.config.draw * 1_000_003 + self.steps)
        chance = chances(self._shares())[self._real]
        drawn = torch.rand(len(chance), generator=generator, dtype=chance.dtype) < chance
        for name, gate in self.drawn_gates.items():
            units = self._unit_of[name]
            gate.drawn = (drawn[units] | (units < 0)).to(gate.mask).requires_grad_(True)
        self.let_pass({name: ~flags for name, flags in self.asleep().items()})

    def _land(self, target: Target) -> None:
        """Fix the widths that the ratios stand for, and the channels."""
        theta = self.theta
        self.aim(target.widest(lambda share: self.kept(theta + (2 * share - 1) * FAR)))
        self.landed = {name: flags.cpu() for name, flags in super().selected().items()}
        for gate in self.drawn_gates.values():
            gate.drawn = None
        self.let_pass(self.keep())

    def after_epoch(self, progress: float) -> None:
        """Land at the end of the phase at the latest, however many steps were skipped."""
        if progress >= 1 and self.landed is None and self.target is not None:
            self._land(self.target)

    def selected(self) -> dict[str, Tensor]:
        """What is settled, or the unlikeliest channels of each group."""
        return super().selected() if self.landed is None else self.landed

    def asleep(self) -> dict[str, Tensor]:
        """The unlikeliest channels of each group, as many as its ratio leaves out by now."""
        if self.landed is not None:
            return self.landed
        kept, scores = self.kept(self.theta), self.scores()
        return {g.name: lowest(scores[g.name], g.channels - round(kept[g.name])) for g in self.groups}

    def figures(self) -> dict[str, float]:
        """The smallest and the largest keep ratio, and how sharp choices are."""
        alpha = self.theta.sigmoid()
        return {"least_ratio": float(alpha.min()), "largest_ratio": float(alpha.max()), "sharpness": self.sharpness}

    def state_dict(self) -> dict[str, Any]:
        """Ratios, the mean gradient, and what was drawn."""
        drawn = {name: gate.drawn.tolist() for name, gate in self.drawn_gates.items() if gate.drawn is not None}
        trained = {"theta": self.theta.tolist(), "gradient": self._gradient.tolist(), "size": self._size}
        landed = None if self.landed is None else {name: flags.tolist() for name, flags in self.landed.items()}
        return super().state_dict() | trained | {"drawn": drawn, "landed": landed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self._size = float(state["size"])
        if state["landed"] is not None:
            self.landed = {g.name: still(state["landed"].get(g.name, []), g.channels) for g in self.groups}
        self.theta, self._gradient = (torch.tensor(state[key], dtype=torch.float64) for key in ("theta", "gradient"))
        for name, gate in self.drawn_gates.items():
            if name in state["drawn"]:
                gate.drawn = torch.tensor(state["drawn"][name]).to(gate.mask).requires_grad_(True)
                gate.masked = True
