"""What a recipe may say: one pydantic model for each section, everything checked before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pcshrink.train.recipe.output import OutputSection
from pcshrink.train.recipe.section import AtLeastOne, Count, Positive, Ratio, Section, Share


class ModelSection(Section):
    """Which network, and from which weights it starts.

    Attributes:
        name: As ``pcshrink.models.create`` takes it: a name of pcshrink, torchvision or timm, or
            ``package.module:callable``.
        args: Passed on to it. ``num_classes`` is filled in from the data.
        pretrained: Load the library's own weights.
        weights: A safetensors or torch file (a state dict) to start from; names and shapes must fit.
        start: A folder with a network that was cut from this one and saved without generators, to train it on.
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


class DataSection(Section):
    """Where the images come from; the fields are those of ``pcshrink.data.DataConfig``."""

    name: Literal["digits", "cifar10", "folder"]
    root: Path | None = None
    batch_size: AtLeastOne = 128
    eval_batch_size: AtLeastOne = 500
    padding: Count | None = None
    flip: bool | None = None
    cutout: Count = 0
    image_size: AtLeastOne = 224
    resize_size: AtLeastOne = 256
    rand_augment: bool = False
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    workers: Count | None = None


class EpochsSection(Section):
    """How long each phase lasts.

    Attributes:
        dense: The plain network first; its result is the baseline and the teacher.
        warmup: Gates attached, nothing pushed yet.
        shrink: The penalty grows until everything selected is zero, at a constant learning rate.
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
        name: The optimizer.
        lr: The learning rate of the dense, warm-up and shrinking phases.
        settle_lr: The learning rate the settling phase starts from; ``lr`` if not given.
        hold_lr: Keep the learning rate constant until the settling phase. If not, it falls over warm-up, shrinking and
            settling together.
        momentum: Of SGD.
        nesterov: Of SGD.
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

    name: Literal["sgd", "adamw"] = "sgd"
    lr: Positive = 0.1
    settle_lr: Positive | None = None
    hold_lr: bool = True
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
        ema: Decay of the average of the weights that is evaluated and saved; 0 turns it off.
        precision: Of the forward and backward pass; weights stay float32 (float64 with ``fp64``).
        compile: Run the network through ``torch.compile``.
        channels_last: Images and weights in channels_last layout.
        accelerator: What to run on; ``auto`` takes a GPU where there is one.
        sync_norm: Share batch-norm statistics between processes, so that several give what one gives.
        threads: Threads on a CPU; torch decides by default. Small networks are quickest with 1.
    """

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    mixup: Annotated[float, Field(ge=0)] = 0.0
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    precision: Literal["fp32", "bf16", "fp16", "fp64"] = "fp32"
    compile: bool = False
    channels_last: bool = False
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    sync_norm: bool = True
    threads: AtLeastOne | None = None


class BudgetSection(Section):
    """What the compact network may cost: one of four, a share of the dense network (up to 1) or a number.

    Attributes:
        madds: Multiply-adds of one sample.
        params: Parameters.
        mem_access: The paper's memory access cost.
        latency: Measured time of the folded network, as a share of the dense one's.
        convention: How madds and mem_access are counted; see ``docs/metrics.md``.
        runtime: Where latency is measured.
        batch: Batch size for latency.
        threads: Threads for latency; by default as many as torch uses.
    """

    madds: Positive | None = None
    params: Positive | None = None
    mem_access: Positive | None = None
    latency: Ratio | None = None
    convention: Literal["layers", "paper"] = "layers"
    runtime: Literal["eager", "compiled", "onnxruntime", "openvino"] = "onnxruntime"
    batch: AtLeastOne = 1
    threads: AtLeastOne | None = None

    @model_validator(mode="after")
    def _one(self) -> BudgetSection:
        if sum(v is not None for v in (self.madds, self.params, self.mem_access, self.latency)) != 1:
            message = "give exactly one of madds, params, mem_access and latency, for example {madds: 0.43}"
            raise ValueError(message)
        return self

    @property
    def metric(self) -> Literal["madds", "params", "mem_access"]:
        """Which cost is limited."""
        if self.madds is not None:
            return "madds"
        return "params" if self.params is not None else "mem_access"

    @property
    def amount(self) -> float:
        """The limit as it was given."""
        return float(getattr(self, self.metric))


class ShrinkSection(Section):
    """How the network shrinks. ``ratio`` or ``budget`` says how far; the rest are the settings of ``ShrinkConfig``.

    Attributes:
        budget: What the compact network may cost; the number of channels of each group follows from it.
        allocation: With a budget: the same share of every group, or by running salience per cost.
        gates: What becomes of the salience generators in the end: kept, or folded into the layers by blending
            them into their running mean during the first half of the settling phase.
        compact_every: Cut dead channels out every so many epochs while training; 0 cuts once, at the end.
        raise_rate: What lambda is multiplied by each epoch late in the shrinking phase, as long as selected
            channels are still alive.
    """

    ratio: Ratio | dict[str, Ratio] | None = None
    budget: BudgetSection | None = None
    allocation: Literal["uniform", "global"] = "uniform"
    strength: Positive | Literal["A", "B", "C"] = "B"
    lam: Positive | None = None
    power: Positive = 2.0
    alpha: Ratio = 0.1
    scope: Literal["group", "global"] = "group"
    policy: Literal["running", "input"] = "running"
    method: Literal["shrink", "truncate", "lasso"] = "shrink"
    reduction: AtLeastOne = 4
    generator_norm: bool = True
    init_salience: Ratio = 0.9
    threshold: Ratio = 1e-3
    min_channels: AtLeastOne = 2
    align: AtLeastOne | Literal["auto"] = 1
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    gates: Literal["keep", "fold"] = "keep"
    compact_every: Count = 0
    raise_rate: Annotated[float, Field(ge=1)] = 2.0

    @model_validator(mode="after")
    def _how_far(self) -> ShrinkSection:
        if self.ratio is not None and self.budget is not None:
            message = "ratio and budget both say how far to shrink; remove one"
            raise ValueError(message)
        if self.compact_every and self.min_channels < 2:
            message = "compact_every needs min_channels of at least 2, so that a group that was cut is found again"
            raise ValueError(message)
        if self.allocation == "global" and self.cost_budget is None:
            message = "allocation: global needs a budget of madds, params or mem_access, for example {madds: 0.5}"
            raise ValueError(message)
        if self.latency_budget is not None and self.gates != "fold":
            message = "a latency budget needs gates: fold, since generators take time of their own"
            raise ValueError(message)
        if self.budget is not None and (self.scope == "global" or self.method == "lasso"):
            message = "a budget fixes the width of every group; use scope: group (allocation: global) and no lasso"
            raise ValueError(message)
        return self

    @property
    def cost_budget(self) -> BudgetSection | None:
        """A budget that can be counted beforehand."""
        return None if self.budget is None or self.budget.latency is not None else self.budget

    @property
    def latency_budget(self) -> BudgetSection | None:
        """A budget that must be measured."""
        return self.budget if self.budget is not None and self.budget.latency is not None else None


class DistillSection(Section):
    """Learn from a teacher as well.

    Attributes:
        teacher: ``dense`` is the network itself before it shrinks; anything else names a model as in ``model``.
        args: Passed on to that model.
        weights: The teacher's state dict, for a named model.
        loss: Mean squared difference of the scores, or cross entropy with softened targets.
        weight: Share of this loss; the rest is the ordinary one.
        temperature: For ``soft``.
    """

    teacher: str = "dense"
    args: dict[str, Any] = Field(default_factory=dict)
    weights: Path | None = None
    pretrained: bool = False
    loss: Literal["mse", "soft"] = "mse"
    weight: Share = 0.5
    temperature: Positive = 4.0


class Recipe(Section):
    """A whole training run."""

    description: str = ""
    seed: Count = 0
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
