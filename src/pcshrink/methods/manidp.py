"""Manifold regularised dynamic pruning: easy inputs use fewer channels, similar inputs similar ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.config import MethodConfig, is_number
from pcshrink.errors import SalienceError
from pcshrink.methods.base import ActivityTarget, Step
from pcshrink.methods.dynamic import Density
from pcshrink.methods.layers import ConvLayer
from pcshrink.methods.pooling import pool
from pcshrink.methods.processes import processes, sum_over_processes
from pcshrink.methods.reading import ReadingGate
from pcshrink.methods.recording import Recording
from pcshrink.surgery.gate import Axes, Gate, GateSpec

WIDE = 80  # layers with fewer channels have no squeeze
OFF = -10000.0  # a threshold that lets everything pass


@dataclass(frozen=True, kw_only=True)
class ManiDPConfig(MethodConfig):
    """Settings of manifold regularised dynamic pruning; the target share of channels is 1 - ``ratio``.

    Attributes:
        squeeze: The hidden width of a salience module is that of its layer divided by this.
        complexity: Weight of the complexity loss.
        similarity: Weight of the similarity loss.
        easy: A sample is easy if its loss is below this share of the mean loss.
        gamma: The exponent of a sample's easiness.
        clamp: The largest salience.
    """

    method: ClassVar[str] = "manidp"

    squeeze: int = 2
    complexity: float = 5e-3
    similarity: float = 1.0
    easy: float = 0.5
    gamma: float = 1.0
    clamp: float = 10.0

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check_counts("squeeze")
        self.check_positive("easy", "gamma", "clamp")
        for name in ("complexity", "similarity"):
            value = getattr(self, name)
            self.check(is_number(value) and value >= 0, name, value, "a number of at least 0")


class ManiDPGate(Recording[tuple[Tensor, Tensor]], ReadingGate, kind="manidp"):
    """Multiplies by the saliences that are not below the layer's threshold.

    Attributes:
        threshold: What a salience must reach to pass.
        total: The saliences of the epoch so far, summed over this process's samples (C,).
        seen: Over how many.
        noting: Sum them up in evaluation as well.
        recorded: Saliences and pooled features of the newest training pass, call by call.
    """

    AXES: ClassVar[Axes] = {
        "mask": {0: "own"},
        "fc1.weight": {1: "fed"},
        "fc2.weight": {0: "own"},
        "fc2.bias": {0: "own"},
    }
    SWITCHES: ClassVar[tuple[str, ...]] = ("masked", "threshold")
    FOLDS: ClassVar[bool] = False
    DECAYED: ClassVar[bool] = False

    def __init__(self, spec: GateSpec) -> None:
        super().__init__(spec)
        hidden = int(spec.settings["hidden"])
        self.fc1 = nn.Linear(spec.in_features, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, spec.channels)
        for layer in (self.fc1, self.fc2):
            nn.init.kaiming_normal_(layer.weight)
        nn.init.ones_(self.fc2.bias)
        self.threshold = OFF
        self.noting = False
        self.total, self.seen = torch.zeros(spec.channels, dtype=torch.float64), 0

    @classmethod
    def shapes(cls, spec: GateSpec) -> dict[str, list[int]]:
        """The shape of each tensor that has own or fed channels."""
        own, fed, hidden = spec.channels, spec.in_features, int(spec.settings["hidden"])
        return {"mask": [own], "fc1.weight": [hidden, fed], "fc2.weight": [own, hidden], "fc2.bias": [own]}

    def start_pass(self) -> None:
        """Add the last pass to the sums of the epoch."""
        for salience, _ in self.recorded:
            self.note(salience)
        super().start_pass()

    def note(self, salience: Tensor) -> None:
        """Add saliences (B, C) to the sums."""
        self.total = self.total.to(salience.device) + salience.detach().sum(dim=0).double()
        self.seen += len(salience)

    def forward(self, pooled: Tensor) -> Tensor:
        """The salience of each channel: (B, C_in) -> (B, C), from 0 to the clamp."""
        with torch.autocast(pooled.device.type, enabled=False):
            hidden = F.relu(self.fc1(pooled.to(self.fc1.weight.dtype)))
            return F.relu(self.fc2(hidden)).clamp(max=float(self.spec.settings["clamp"]))

    def factor(self, x: Tensor) -> Tensor:
        """The salience where it reaches the threshold."""
        salience: Tensor = self(self.reading())
        if self.training:
            self.record((salience, pool(x, self.spec.axis)))
        elif self.noting:
            self.note(salience)
        factor = salience * (salience >= self.threshold)
        return factor * self.mask if self.masked else factor

    def means(self) -> Tensor:
        """The mean salience of each channel since ``forget`` (C,), the same in all processes."""
        sums = torch.cat([self.total, self.total.new_tensor([float(self.seen)])])
        sum_over_processes(sums)
        return sums[:-1] / sums[-1].clamp(min=1)

    def forget(self) -> None:
        """An epoch is over."""
        self.total, self.seen = torch.zeros_like(self.total), 0


class ManiDP(Density[ManiDPConfig]):
    """Manifold regularised dynamic pruning: saliences below a layer's threshold are zero for that input.

    s = min(ReLU(W2 ReLU(W1 u) + b), clamp), u the mean over space of a convolution's input; out = s 1[s >= threshold]
    norm(conv(x)). After every epoch each channel's mean salience over the training images is taken, and the threshold
    becomes the ceil(r C)-th largest of a layer's means; r = (1 - r*) / 2 cos(pi t) + (1 + r*) / 2 falls from 1 to the
    target r* = 1 - ``ratio`` over the shrinking phase. Two terms are added to the loss. Complexity: sum over layers of
    the mean over samples of w_i mean_c s_ic, with w_i = max(0, 1 - L_i / (easy L))^gamma for a sample's loss L_i and
    the last epoch's mean L. Similarity: sum over layers of |G(s) - G(f)|^2 / B^2, where G(a) is a a^T with rows of
    length 1, s before the threshold, and f the layer's mean output before the gate. All convolutions but the stem and
    1 x 1 shortcuts have gates; their matrices have no weight decay.

    Departures: features are pooled before the activation, where the gate sits. The clamp is 10, since 1000 is reported
    to explode. In the first epoch L is the mean over its samples so far, instead of that of an extra pass over all
    images; with mixup L_i is that of the sample's own label. With a budget r* is found by measuring, since thresholds
    on means do not fix what passes, and a threshold may lie between two means, so that the cost does not jump.
    """

    Config: ClassVar[type[MethodConfig]] = ManiDPConfig
    Gate: ClassVar[type[Gate]] = ManiDPGate
    unit: ClassVar[str] = "output channel, for each input"
    starts_from: ClassVar[str] = "dense weights"
    budget_by: ClassVar[str] = "the target share r* of all gates"
    needs: ClassVar[tuple[str, ...]] = ("pretrained weights",)
    reference: ClassVar[str] = "Tang et al., Manifold Regularized Dynamic Network Pruning, CVPR 2021"

    def __init__(self, config: ManiDPConfig) -> None:
        super().__init__(config)
        self.mean_loss: float | None = None
        self.losses, self.samples = 0.0, 0
        self.phase = 0.0
        self._means: dict[str, Tensor] = {}

    def unfit(self, layer: ConvLayer) -> str | None:
        """Stem and shortcuts stay whole."""
        if layer.stem:
            return "method manidp gates no layer that reads the network's input"
        return "method manidp gates no shortcut" if layer.shortcut else None

    def gate_spec(self, spec: GateSpec) -> GateSpec:
        """With a salience module of the configured size."""
        squeeze = self.config.squeeze if spec.channels >= WIDE else max(self.config.squeeze // 2, 1)
        settings = {"hidden": max(spec.channels // squeeze, 1), "clamp": float(self.config.clamp)}
        return replace(spec, kind=ManiDPGate.kind, settings=settings)

    @property
    def manidp_gates(self) -> dict[str, ManiDPGate]:
        """The gates by layer."""
        return {name: gate for name, gate in self.gates.items() if isinstance(gate, ManiDPGate)}

    def loss(self, step: Step | None = None) -> Tensor:
        """Complexity and similarity.

        Raises:
            SalienceError: The samples' scores and labels are not known.
        """
        if step is None or step.scores is None or step.labels is None:
            message = "method manidp weighs samples by their loss; call penalty(Step(labels=..., scores=...))"
            raise SalienceError(message)
        losses = F.cross_entropy(step.scores.detach().float(), step.labels, reduction="none")
        self.losses, self.samples = self.losses + float(losses.sum()), self.samples + len(losses)
        mean = self.losses / self.samples if self.mean_loss is None else self.mean_loss
        easiness = sample_weights(losses, mean, self.config.easy, self.config.gamma)
        recorded = [pair for gate in self.manidp_gates.values() for pair in gate.recorded]
        terms = [
            self.config.complexity * (easiness.to(s.dtype) * s.mean(dim=-1)).mean()
            + self.config.similarity * (relations(s) - relations(f.to(s.dtype))).square().sum() / len(s) ** 2
            for s, f in recorded
        ]
        return torch.stack(terms).sum() if terms else losses.new_zeros(())

    def open(self, goal: float) -> None:
        """Set the thresholds that this share of the mean saliences reaches."""
        self._set(dict.fromkeys(self.gates, goal))

    def follow(self) -> None:
        """Set the thresholds for the share of this epoch."""
        if self._means:
            self._set({name: remaining(share, self.phase) for name, share in self.shares().items()})

    def _set(self, shares: Mapping[str, float]) -> None:
        for name, gate in self.manidp_gates.items():
            wanted = shares[name] * gate.spec.channels
            rank = wanted if self.target is not None else math.ceil(wanted - 1e-9)
            gate.threshold = ranked(self._means[name], max(rank, self.config.min_channels))

    def set_activity_target(self, target: ActivityTarget) -> None:
        """Look at the saliences of some images first: thresholds are set by their means."""
        if self.goal is None:
            for gate in self.manidp_gates.values():
                gate.noting = True
            target.cost()
            self._take_means()
            for gate in self.manidp_gates.values():
                gate.noting = False
        super().set_activity_target(target)
        if not self.phase:
            self._open_wide()

    def _open_wide(self) -> None:
        self._means = {}
        for gate in self.manidp_gates.values():
            gate.threshold = OFF

    def _take_means(self) -> None:
        self._means = {name: gate.means() for name, gate in self.manidp_gates.items()}
        for gate in self.manidp_gates.values():
            gate.forget()

    def start(self) -> None:
        """What was seen before the phase does not count."""
        super().start()
        for gate in self.manidp_gates.values():
            gate.forget()

    def after_step(self, *, pushing: bool = True) -> None:
        """Take the saliences into account; thresholds stay, since they follow means that change between epochs only."""
        super().after_step(pushing=pushing)
        for gate in self.manidp_gates.values():
            gate.start_pass()

    def after_epoch(self, progress: float) -> None:
        """Set the thresholds by the epoch's mean saliences."""
        self.phase = progress
        if self.samples:
            self.mean_loss, self.losses, self.samples = self._mean_loss(), 0.0, 0
        self._take_means()
        self.follow()
        super().after_epoch(progress)

    def _mean_loss(self) -> float:
        sums = torch.tensor([self.losses, float(self.samples)], dtype=torch.float64)
        if processes() > 1:  # they exchange what is on their devices
            sums = sum_over_processes(sums.to(next(self.model.parameters()).device))
        return float(sums[0] / sums[1])

    def figures(self) -> dict[str, float]:
        """What the samples are compared with."""
        return {"mean_loss": self.mean_loss or 0.0, "remaining": remaining(min(self.shares().values()), self.phase)}

    def state_dict(self) -> dict[str, Any]:
        """Losses, thresholds and the sums of the running epoch as well."""
        gates = self.manidp_gates.items()
        own = {
            "mean_loss": self.mean_loss, "losses": self.losses, "samples": self.samples, "phase": self.phase,
            "thresholds": {name: gate.threshold for name, gate in gates},
            "sums": {name: [gate.seen, gate.total.tolist()] for name, gate in gates},
        }  # fmt: skip
        return super().state_dict() | own

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self.mean_loss = None if state["mean_loss"] is None else float(state["mean_loss"])
        self.losses, self.samples, self.phase = float(state["losses"]), int(state["samples"]), float(state["phase"])
        super().load_state_dict(state)
        for name, gate in self.manidp_gates.items():
            gate.threshold = float(state["thresholds"][name])
            gate.seen = int(state["sums"][name][0])
            gate.total = torch.tensor(state["sums"][name][1], dtype=torch.float64)


def remaining(goal: float, progress: float) -> float:
    """The share of channels after a share of the phase: a cosine from 1 to the goal."""
    return (1 - goal) / 2 * math.cos(math.pi * progress) + (1 + goal) / 2


def ranked(values: Tensor, rank: float) -> float:
    """The rank-th largest value, counted from 1; between two of them for a rank between two numbers."""
    ordered = values.sort(descending=True).values.tolist()
    place = min(max(rank - 1, 0.0), len(ordered) - 1.0)
    below = math.floor(place)
    after = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (place - below) * (ordered[after] - ordered[below]))


def sample_weights(losses: Tensor, mean: float, easy: float, gamma: float) -> Tensor:
    """How easy each sample is: 0 from ``easy`` times the mean loss on, 1 at no loss."""
    limit = max(easy * mean, 1e-12)
    return (1 - losses / limit).clamp(min=0) ** gamma


def relations(rows: Tensor) -> Tensor:
    """How alike the samples of a batch are: (B, C) -> a a^T (B, B) with rows of length 1."""
    return F.normalize(rows @ rows.T, dim=-1)
