"""Which trainings there are.

Those of the trial start from ``zoo/resnet20-dense`` and have the same epochs; shipped ones are built-in recipes.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.trial.places import DENSE
from pcshrink.sweep.ablations import NAMED, Ablation, Setting

RECIPE = "cifar10-resnet20"
EPOCHS = {"dense": 0, "shrink": 20, "settle": 40}
# Widths are not aligned: a width of 16 in steps of 8 could only stay or be halved, and nothing would be learned.
COMMON = (
    f"model.weights={DENSE}",
    "optimizer.name=sgd",
    "data.padding_mode=zeros",
    "shrink.budget.madds=0.425",
    *(f"epochs.{phase}={count}" for phase, count in EPOCHS.items()),
    "shrink.align=1",
    "shrink.fold_over=0",
    "shrink.compact_every=1",
    "train.precision=auto",
    "train.threads=1",
    "output.eval_every=2",
)
# What is shipped has the recipe's own epochs and widths; its dense phase is that of the zoo's network.
AS_SHIPPED = ("train.precision=auto", "train.threads=1", "output.eval_every=4")
SHRINKS = (f"model.weights={DENSE}", "epochs.dense=0")
TEACHER = "data/resnet56-4bfd9763.th"  # from where: the description of cifar10-resnet20-taught
SEEDS = (0, 1, 2)
LEARNED = "learned"
# Untrained generators rank channels at random, and truncation zeroes by that ranking at once; the paper trains them for
# 30 epochs before. So its rows have a warm-up, taken from the shrinking phase: all rows have the same number of epochs.
WARMED_UP = ("epochs.warmup=5", "epochs.shrink=15")
BLENDED = "shrink.fold_over=0.5"
OWN_KNOB = " (own knob)"
MUON = ("optimizer.name=muon",)
# Networks that train on at a high rate are known to forget how they were cut.
LOW = "optimizer.settle_lr=0.03"


@dataclass(frozen=True)
class Row:
    """A row of a table: the recipe with some settings, for each seed.

    Attributes:
        name: Of its runs, with the seed behind it.
        title: In the table; a method that takes no budget has ``OWN_KNOB`` in it, since it lands at madds of its own.
        settings: What it changes; ``{seed}`` stands for the seed.
        like: The row whose widths it takes; its run of the same seed must be finished.
        after: The run whose network it starts from, which must be finished as well.
        plain: The dense network for as many epochs, without gates.
        recipe: What the settings are for.
        common: What all rows of its kind change first.
        keeps_model: Whether other rows or the zoo take its network.
        seeds: What it is trained with.
        variant: It is the first row or one of its controls with another setting, not something to compare it with.
    """

    name: str
    title: str
    settings: tuple[str, ...] = ()
    like: str | None = None
    after: str | None = None
    plain: bool = False
    recipe: str = RECIPE
    common: tuple[str, ...] = COMMON
    keeps_model: bool = False
    seeds: tuple[int, ...] = SEEDS
    variant: bool = False


def _method(name: str, *settings: str) -> tuple[str, ...]:
    return (f"shrink.method={name}", *settings)


TRIAL = (
    Row(LEARNED, "PCS, learned widths", keeps_model=True),
    Row(
        "learned-blend", "PCS, learned widths, gates blended over half of settling", (BLENDED,), seeds=SEEDS[:1],
        variant=True,
    ),
    Row("learned-muon", "PCS, learned widths, Muon with an angle of 0.01", MUON, seeds=SEEDS[:1], variant=True),
    Row("random", "random channels at the learned widths", _method("random", "shrink.draw={seed}"), like=LEARNED),
    Row("truncation", "truncation", _method("truncation", *WARMED_UP, BLENDED)),
    Row("scratch", "the learned widths from scratch", _method("scratch", "shrink.draw={seed}"), like=LEARNED),
    Row("uniform", "PCS, uniform widths", ("shrink.allocation=uniform",)),
    Row("learned-madds", "PCS, learned widths, price madds", ("shrink.price=madds",), variant=True),
    Row("torch-pruning", "Torch-Pruning, group norm", _method("torch-pruning")),
    Row("learned-low", "PCS, learned widths, settling from 0.03", (LOW,), seeds=SEEDS[:1], variant=True),
    Row(
        "random-low", "random channels at the learned widths, settling from 0.03",
        _method("random", "shrink.draw={seed}", LOW), like=LEARNED, seeds=SEEDS[:1], variant=True,
    ),
)  # fmt: skip
RIVALS = (
    *(
        Row(name, title, _method(name))
        for name, title in (
            ("fpgm", "FPGM"), ("sfp", "SFP"), ("dsa", "DSA"), ("hinge", "Hinge"), ("dhp", "DHP"), ("fbs", "FBS"),
            ("manidp", "ManiDP"), ("cgnet", "CGNet"), ("dgc", "DGC"), ("mil", "MIL" + OWN_KNOB),
            ("lasso", "LASSO" + OWN_KNOB), ("pcs-input", "PCS, ranked for each input" + OWN_KNOB),
        )
    ),
    Row("truncation-input", "truncation for each input" + OWN_KNOB, _method("truncation-input", *WARMED_UP)),
)  # fmt: skip
# The paper's other network, for which there is no dense start yet.
START_32 = Row(
    "start32", "ResNet-32, dense", ("epochs.dense=40",), recipe="cifar10-resnet32-dense", common=AS_SHIPPED,
    keeps_model=True, seeds=SEEDS[:1],
)  # fmt: skip
COMMON_32 = tuple(
    {
        f"model.weights={DENSE}": f"model.weights=benchmarks/trial/kept/{START_32.name}-0/model/model.safetensors",
        "shrink.budget.madds=0.425": "shrink.budget.madds=0.355",
    }.get(setting, setting)
    for setting in COMMON
)
RIVALS_32 = tuple(
    Row(
        f"{name}32", title, _method(name) if name != LEARNED else (), recipe="cifar10-resnet32", common=COMMON_32,
        after=f"{START_32.name}-0", seeds=SEEDS[:1],
    )
    for name, title in ((LEARNED, "PCS, learned widths"), ("fpgm", "FPGM"), ("fbs", "FBS"), ("manidp", "ManiDP"))
)  # fmt: skip
AS_TRAINED = (*MUON, "optimizer.lr=0.1", "data.padding_mode=reflect")  # as the recipes that shrink
TAUGHT = (*SHRINKS, f"distill.weights={TEACHER}")
SHIPPED = tuple(
    Row(name, title, settings, recipe=recipe, common=AS_SHIPPED, keeps_model=True, seeds=seeds)
    for name, title, recipe, settings, seeds in (
        ("shipped", "ResNet-20, PCS", RECIPE, SHRINKS, SEEDS),
        ("shipped-taught", "ResNet-20, PCS, taught", f"{RECIPE}-taught", TAUGHT, SEEDS),
        ("shipped-dense", "ResNet-20, dense", f"{RECIPE}-dense", ("epochs.dense=200", *AS_TRAINED), SEEDS[:1]),
    )
)
PUBLISHED = ("distill.teacher=resnet56", "distill.args.shortcut=A", f"distill.weights={TEACHER}")
SOFT = ("distill.loss=soft", "distill.temperature=4", "distill.weight=0.9")
# What may make a row better: the first row in fewer epochs, with one thing changed.
BRIEF = ("epochs.shrink=5", "epochs.settle=10")
INGREDIENTS = tuple(
    Row(f"brief-{name}", title, (*BRIEF, *settings))
    for name, title, settings in (
        ("base", "PCS, learned widths", ()),
        ("ema", "average of the weights, 0.999", ("train.ema=0.999",)),
        ("reflect", "padding by reflection", ("data.padding_mode=reflect",)),
        ("mixup", "mixup 0.2", ("train.mixup=0.2",)),
        ("lr", "learning rate 0.2", ("optimizer.lr=0.2",)),
        ("madds", "price madds", ("shrink.price=madds",)),
        ("blend", "gates blended over half of settling", (BLENDED,)),
        ("fp32", "float32", ("train.precision=fp32",)),
        (
            "muon",
            "Muon, angle 0.01 and then 0.033, gates blended",
            (*MUON, "optimizer.lr=0.03", "optimizer.settle_lr=0.1", BLENDED),
        ),
        ("muon-low", "Muon, angle 0.01", MUON),
        ("muon-mid", "Muon, angle 0.01 and then 0.02", (*MUON, "optimizer.settle_lr=0.2")),
    )
)
# The same for what fits the training images better or worse, which shows only in a network that fits them already: the
# cut network of the first row once more from a high learning rate.
AGAIN_FROM = f"benchmarks/trial/kept/{LEARNED}-0/model"
AGAIN_EPOCHS = 40
AGAIN_COMMON = (
    f"model.start={AGAIN_FROM}",
    f"epochs.dense={AGAIN_EPOCHS}",
    "optimizer.lr=0.1",
    "optimizer.lr_warmup=0",
    "output.latency=false",
    *AS_SHIPPED,
)
AGAIN = tuple(
    Row(f"again-{name}", title, settings, recipe=f"{RECIPE}-dense", common=AGAIN_COMMON)
    for name, title, settings in (
        ("sgd", "SGD", ()),
        ("muon", "Muon", MUON),
        ("mixup", "Muon, mixup 0.2", (*MUON, "train.mixup=0.2")),
        ("cutout", "Muon, cutout of 8 pixels", (*MUON, "data.cutout=8")),
        ("reflect", "Muon, padding by reflection", (*MUON, "data.padding_mode=reflect")),
        ("smooth", "Muon, label smoothing 0.1", (*MUON, "train.label_smoothing=0.1")),
        ("taught", "Muon, taught by a ResNet-56, soft targets", (*MUON, *PUBLISHED, *SOFT)),
    )
)
SCRATCH_MUON = Row(
    "scratch-muon", "the learned widths from scratch, Muon",
    _method("scratch", "shrink.draw={seed}", "optimizer.name=muon"), like=LEARNED,
)  # fmt: skip
# Beside the first row while it is pushed: how far error and loss swing by themselves at this learning rate.
TWIN = Row(
    "twin", "gates without a push",
    ("shrink.budget=null", "shrink.strength=1e-9", "shrink.gates=keep", "shrink.fold_over=0.5", "epochs.settle=0"),
    seeds=SEEDS[:1],
)  # fmt: skip
# The paper's ablations are shorter. These settings are what the method does anyway, so such rows are one run.
SHORTER = ("epochs.shrink=10", "epochs.settle=20")
SHORTER_WARMED_UP = ("epochs.warmup=3", "epochs.shrink=7", "epochs.settle=20")
USUAL = ("shrink.ratio=0.5", "shrink.strength=B")


def ablation_row(ablation: Ablation, setting: Setting) -> Row:
    """A row of a table of the paper, named by what it changes."""
    changes = tuple(change for change in setting.changes if change not in USUAL)
    words = [change.partition(".")[2].replace("=", "-") for change in changes]
    name = "-".join(["ablation", *["plain"] * setting.plain, *["budget"] * ablation.budget, *words])
    free = () if ablation.budget else ("shrink.budget=null",)
    epochs = SHORTER_WARMED_UP if "shrink.method=truncation" in changes else SHORTER
    return Row(name, setting.label, (*epochs, *free, *changes), plain=setting.plain)


ABLATIONS = {
    table: tuple(ablation_row(ablation, setting) for setting in ablation.settings) for table, ablation in NAMED.items()
}
_ABLATED = tuple({row.name: row for rows in ABLATIONS.values() for row in rows}.values())
_ONCE = (TWIN, *_ABLATED, *RIVALS, START_32, *RIVALS_32, SCRATCH_MUON)
ROWS = {row.name: row for row in (*TRIAL, *SHIPPED, *INGREDIENTS, *AGAIN, *_ONCE)}


def run_names() -> list[str]:
    """All runs, the most telling first: every row with one seed, then more seeds, then the others."""
    trial = [f"{row.name}-{seed}" for seed in SEEDS for row in (*TRIAL, *SHIPPED) if seed in row.seeds]
    brief = [f"{row.name}-{seed}" for seed in SEEDS[:2] for row in (*INGREDIENTS, *AGAIN)]
    return trial + brief + [f"{row.name}-{SEEDS[0]}" for row in _ONCE]


def split_name(run: str) -> tuple[Row, int]:
    """The row and the seed of a run."""
    name, _, seed = run.rpartition("-")
    if name not in ROWS or not seed.isdigit():
        message = f"there is no run {run!r}; runs are called ROW-SEED, with rows {', '.join(ROWS)}"
        raise SystemExit(message)
    return ROWS[name], int(seed)
