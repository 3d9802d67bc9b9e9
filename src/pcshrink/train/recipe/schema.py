"""What a recipe may say: one pydantic model for each section, everything checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, InstanceOf, model_validator

from pcshrink.budget.config import BudgetConfig
from pcshrink.config import Convention, MethodConfig
from pcshrink.data.config import DataConfig
from pcshrink.data.registry import DATASETS
from pcshrink.methods.registry import method_class
from pcshrink.train.recipe.embedding import Embedding
from pcshrink.train.recipe.output import OutputSection
from pcshrink.train.recipe.section import AtLeastOne, Count, Positive, Ratio, Section, Seed, Share

USUAL_FOLD_OVER = 0.5


class ModelSection(Section):
    """Which network, and from which weights it starts.

    Attributes:
        name: As ``pcshrink.models.create`` takes it: a name of pcshrink, torchvision or timm, or
            ``package.module:callable``.
        args: Passed on to it. ``num_classes`` is filled in from the data.
        pretrained: Load the library's own weights.
        weights: A safetensors or torch file (a state dict) to start from; names and shapes must fit.
        start: A folder with a network that was cut from this one and saved without gates, to train it on.
    """

    name: str
    args: dict[str, Any] = Field(default_factory=dict)
    pretrained: bool = False
    weights: Path | None = None
    start: Path | None = None

    @model_validator(mode="after")
    def _one_start(self) -> ModelSection:
        if self.start is not None and (self.weights is not None or self.pretrained):
            message = "start brings its own weights; remove weights and pretrained"
            raise ValueError(message)
        return self


class DataSection(Embedding):
    """Where the images come from, and how batches are made of them.

    Attributes:
        name: The data set: built in, registered, or ``package.module:callable``.
        root: Its folder.
        settings: The other keys: those of ``pcshrink.data.DataConfig``.
    """

    name: Annotated[str, AfterValidator(DATASETS.check)]
    root: Path | None = None
    settings: DataConfig

    @classmethod
    def settings_class(cls, data: Mapping[str, object]) -> type[Any]:
        """All data sets have the same options."""
        return DataConfig


class EpochsSection(Section):
    """How long each phase lasts.

    Attributes:
        dense: The plain network first; its result is the baseline and the teacher.
        warmup: Gates attached, nothing pushed yet.
        shrink: The method lets channels go, at a constant learning rate; with ``pcs`` a growing penalty pushes them to
            zero unless the task holds them.
        settle: What is left recovers while the learning rate falls.
    """

    dense: Count = 0
    warmup: Count = 0
    shrink: Count = 0
    settle: Count = 0

    @property
    def total(self) -> int:
        """All phases together."""
        return self.dense + self.warmup + self.shrink + self.settle


class OptimizerSection(Section):
    """How weights move.

    Attributes:
        name: The optimizer. ``muon`` turns filters of convolutions by orthogonal steps and moves the rest as ``sgd``.
        lr: The learning rate of the dense, warm-up and shrinking phases.
        settle_lr: The learning rate the settling phase starts from; ``lr`` if not given.
        hold_lr: Keep the learning rate constant until the settling phase. If not, it falls over warm-up, shrinking and
            settling together.
        turn: Of Muon: the angle of a step where the learning rate is ``lr``; it falls and rises with it.
        momentum: Of SGD and Muon.
        nesterov: Of SGD and Muon.
        betas: Of AdamW.
        weight_decay: On matrices only; norms and biases have none.
        schedule: How the learning rate falls in the dense and settling phases.
        milestones: For ``step``: the shares of a phase at which it is multiplied by ``gamma``.
        gamma: For ``step``.
        final_lr: For ``cosine``: the share of the learning rate left at the end.
        lr_warmup: Epochs in which it rises from 0, at the start of training and when gates are attached.
        clip: Largest norm of the gradient.
        accumulate: Batches whose gradients make one step.
    """

    name: Literal["sgd", "adamw", "muon"] = "sgd"
    lr: Positive = 0.1
    settle_lr: Positive | None = None
    hold_lr: bool = True
    turn: Positive = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    betas: tuple[Ratio, Ratio] = (0.9, 0.999)
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    schedule: Literal["cosine", "step"] = "cosine"
    milestones: tuple[Share, ...] = (0.5, 0.75)
    gamma: Ratio = 0.1
    final_lr: Share = 0.0
    lr_warmup: Annotated[float, Field(ge=0)] = 0.0
    clip: Positive | None = None
    accumulate: AtLeastOne = 1

    @model_validator(mode="after")
    def _one_fall(self) -> OptimizerSection:
        if self.settle_lr is not None and not self.hold_lr:
            message = "settle_lr needs hold_lr: true; without it the learning rate falls in one piece"
            raise ValueError(message)
        return self


class TrainSection(Section):
    """How the loop runs.

    Attributes:
        label_smoothing: Share of the target spread over all classes.
        mixup: Alpha of the Beta distribution that mixes pairs of images; 0 turns it off.
        ema: Decay of the average of the weights that is evaluated and saved, its norms recalibrated; 0 turns it off.
        precision: Of the forward and backward pass; weights stay float32 (float64 with ``fp64``). ``auto`` is bf16
            where the hardware multiplies in it, else fp32; a run may go on where it is the other one.
        compile: Run the network through ``torch.compile``.
        channels_last: Images and weights in channels_last layout.
        accelerator: What to run on; ``auto`` takes a GPU where there is one.
        sync_norm: Share batch-norm statistics between processes, so that several give what one gives.
        threads: Threads on a CPU; torch decides by default. Small networks are quickest with 1.
        timeout: Minutes that a process waits for a sign of life of the others before it takes them for lost.
    """

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    mixup: Annotated[float, Field(ge=0)] = 0.0
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    precision: Literal["fp32", "bf16", "fp16", "fp64", "auto"] = "fp32"
    compile: bool = False
    channels_last: bool = False
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    sync_norm: bool = True
    threads: AtLeastOne | None = None
    timeout: Positive = 5.0


class ShrinkSection(Embedding):
    """How the network shrinks: the method, what it may cost, and what becomes of the gates.

    Attributes:
        method: Which channels go; ``pcshrink methods`` lists them.
        budget: What the compact network may cost.
        like: A finished run or a saved network whose widths to take.
        gates: What becomes of the gates in the end: kept, or folded into the layers once they were made constant.
        fold_over: Share of the settling phase over which gates that are to be folded become constant; 0 folds them as
            soon as the network is cut.
        compact_every: Epochs of shrinking after which dead channels are cut out; 0 cuts once, at the end.
        settings: The other keys: those of the method.
    """

    method: str = "pcs"
    budget: BudgetConfig | None = None
    like: Path | None = None
    gates: Literal["keep", "fold"] = "keep"
    fold_over: Share = USUAL_FOLD_OVER
    compact_every: Count = 0
    settings: InstanceOf[MethodConfig]

    @classmethod
    def settings_class(cls, data: Mapping[str, object]) -> type[Any]:
        """The settings of the method."""
        return method_class(str(data.get("method", cls.model_fields["method"].default))).Config

    @model_validator(mode="after")
    def _how_far(self) -> ShrinkSection:
        dynamic = not method_class(self.method).static
        chooses = f"method {self.method} is dynamic: it chooses for each input and cuts nothing"
        wrong = [
            (dynamic and self.gates == "fold", f"{chooses}, so its gates cannot be folded; set gates: keep"),
            (dynamic and self.compact_every, f"{chooses}, so compact_every has nothing to do; set it to 0"),
            (dynamic and self.budget is not None and self.budget.madds is None,
             f"{chooses}, so only madds fall; give the budget in madds"),
            (self.budget is not None and self.like is not None,
             "budget and like both say how far to shrink; remove one"),
            (self.compact_every and self.settings.min_channels < 2,
             "compact_every needs min_channels of at least 2, so that a group that was cut is found again"),
            (self.latency_budget is not None and self.gates != "fold",
             "a latency budget needs gates: fold, since gates take time of their own"),
            (self.gates == "keep" and self.fold_over != USUAL_FOLD_OVER,
             "fold_over has no effect on gates: keep; set gates: fold"),
            (method_class(self.method).needs_budget and self.cost_budget is None,
             f"method {self.method} shares out what a budget leaves; set madds, params or mem_access of budget"),
        ]  # fmt: skip
        for holds, message in wrong:
            if holds:
                raise ValueError(message)
        return self

    @property
    def cost_budget(self) -> BudgetConfig | None:
        """A budget that can be counted beforehand."""
        return None if self.budget is None or self.budget.latency is not None else self.budget

    @property
    def convention(self) -> Convention:
        """How madds and mem_access are counted: as the budget says, or by layers."""
        return self.budget.convention if self.budget is not None else "layers"

    @property
    def latency_budget(self) -> BudgetConfig | None:
        """A budget that must be measured."""
        return self.budget if self.budget is not None and self.budget.latency is not None else None


class DistillSection(Section):
    """Learn from a teacher as well.

    Attributes:
        teacher: ``dense`` is the network itself before it shrinks; anything else names a model as in ``model``.
        args: Passed on to that model.
        weights: The teacher's state dict, for a named model.
        pretrained: Take the library's own weights, for a named model.
        loss: Mean squared difference of the scores; cross entropy with softened targets; or that taken apart into the
            label's class and the others (``dkd``), which then weigh ``label_weight`` and ``others_weight``.
        weight: Share of this loss; the rest is the ordinary one.
        temperature: For ``soft`` and ``dkd``.
        standardize: Bring the scores of each image to mean 0 and deviation 1 first, so that only their pattern is
            taught; for ``soft`` and ``dkd``.
        label_weight: For ``dkd``.
        others_weight: For ``dkd``.
        cache: Keep the teacher's scores for this many views of every image and show no others, so that teaching costs
            little more than plain training; 0: ask the teacher every time.
    """

    teacher: str = "dense"
    args: dict[str, Any] = Field(default_factory=dict)
    weights: Path | None = None
    pretrained: bool = False
    loss: Literal["mse", "soft", "dkd"] = "mse"
    weight: Share = 0.5
    temperature: Positive = 4.0
    standardize: bool = False
    label_weight: Annotated[float, Field(ge=0)] = 1.0
    others_weight: Annotated[float, Field(ge=0)] = 8.0
    cache: Count = 0

    @model_validator(mode="after")
    def _scores_fit(self) -> DistillSection:
        if self.standardize and self.loss == "mse":
            message = "standardize has no effect on loss: mse; choose soft or dkd"
            raise ValueError(message)
        return self


class Recipe(Section):
    """A whole training run."""

    description: str = ""
    seed: Seed = 0
    model: ModelSection
    data: DataSection
    epochs: EpochsSection
    optimizer: OptimizerSection = OptimizerSection()
    train: TrainSection = TrainSection()
    shrink: ShrinkSection | None = None
    distill: DistillSection | None = None
    output: OutputSection = OutputSection()

    @model_validator(mode="after")
    def _phases_fit(self) -> Recipe:
        epochs, shrink, distill, plain = self.epochs, self.shrink, self.distill, self.shrink is None
        from_dense = distill is not None and distill.teacher == "dense"
        learned = epochs.dense or self.model.weights is not None or self.model.pretrained
        wrong = [
            (epochs.total == 0, "epochs: at least one phase must last an epoch"),
            (plain and epochs.warmup + epochs.shrink + epochs.settle,
             "epochs.warmup, shrink and settle need a shrink section; a plain run has epochs.dense only"),
            (plain and from_dense,
             "distill.teacher: dense is the network before it shrinks; a plain run needs another teacher"),
            (from_dense and not learned,
             "distill.teacher: dense has learned nothing; set epochs.dense, model.weights or model.pretrained"),
            (distill is not None and not from_dense and distill.weights is None and not distill.pretrained,
             "distill.teacher needs distill.weights or distill.pretrained: true, unless it is dense"),
            (distill is not None and distill.cache and self.train.mixup,
             "distill.cache keeps scores of single images, and train.mixup mixes them; turn one off"),
            (distill is not None and distill.loss == "dkd" and self.train.mixup,
             "distill.loss: dkd needs one label for each image, and train.mixup gives two; turn one off"),
            (shrink is not None and self.model.start is not None,
             "model.start is trained on as it is; remove the shrink section, or start from dense weights"),
            (shrink is not None and not epochs.shrink,
             "epochs.shrink must be at least 1 with a shrink section; remove the section for a plain run"),
            (shrink is not None and shrink.gates == "fold" and not epochs.settle,
             "shrink.gates: fold blends during the settling phase; set epochs.settle, or gates: keep"),
        ]  # fmt: skip
        for holds, message in wrong:
            if holds:
                raise ValueError(message)
        return self
