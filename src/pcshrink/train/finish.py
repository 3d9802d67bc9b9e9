"""The end of a run: the compact network, its proof, its costs, its files."""

from __future__ import annotations

import copy
import logging
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from pcshrink.artifact import save
from pcshrink.budget.allocate import Limit
from pcshrink.budget.config import LATENCY_TOLERANCE, BudgetConfig
from pcshrink.budget.cost_model import cost_of
from pcshrink.errors import ShrinkError
from pcshrink.measure import profile
from pcshrink.measure.timing import Ratio
from pcshrink.models.registry import resolve
from pcshrink.proof.compact import compact
from pcshrink.runtime.registry import RuntimeLike
from pcshrink.surgery.cut import compose
from pcshrink.surgery.fold import fold
from pcshrink.surgery.gates import find_gates
from pcshrink.surgery.plan import PrunePlan
from pcshrink.train import reshape
from pcshrink.train.evaluate import Score, evaluate
from pcshrink.train.exports import write_exports
from pcshrink.train.facts import Aim, Costs, Cut
from pcshrink.train.measured import measure_dynamic
from pcshrink.train.outcome import BudgetOutcome
from pcshrink.train.phases import Phases
from pcshrink.train.result import Result
from pcshrink.train.session import Session, blank_model, make_model
from pcshrink.train.together import from_first

log = logging.getLogger(__name__)


def finish(session: Session, phases: Phases, folder: Path) -> Result:
    """Make, prove, measure and save the final network."""
    session.end_training()
    facts = phases.facts
    final, plan, cut = _final_network(session, facts.cut)
    final.eval()
    score = _score(final, session)
    dense = facts.dense.to_dict() if facts.dense is not None else {}
    result = Result(folder, folder / "model", dense, {}, asdict(cut) if cut is not None else None)
    if session.data.taught:
        result.measured = "disagreement"
    dynamic = session.shrinker is not None and not session.shrinker.method.static
    costs = _dynamic_costs(result, session, final) if dynamic else _costs(final, session.example)
    result.compact = costs | score.figures()
    if session.recipe.shrink is None and plan is None:
        result.dense |= score.figures()
    if phases.limit is not None:
        result.budget = _counted(phases.limit, result, final, session.example)
    elif facts.timed.aim is not None and session.fabric.is_global_zero and session.settings.budget is not None:
        result.budget = _timed(facts.timed.aim, _latency_share(result, session, final, session.settings.budget))
    if plan is not None:
        result.widths = {name: len(kept) for name, kept in plan.groups.items()}
    from_first(session.fabric, lambda: _measure_and_write(result, session, final, plan))
    return result


def _measure_and_write(result: Result, session: Session, final: nn.Module, plan: PrunePlan | None) -> None:
    _measure(result, session, final)
    _write(result, session, final, plan)


def _dynamic_costs(result: Result, session: Session, final: nn.Module) -> dict[str, Any]:
    """Costs of the mean evaluation image."""
    layers, paper = measure_dynamic(session, final)
    result.dynamic = paper if session.settings.convention == "paper" else layers
    return {
        "params": layers.params, "madds": round(layers.madds), "mem_access": layers.mem_access,
        "paper_madds": round(paper.madds), "paper_mem_access": paper.mem_access,
        "gate_madds": layers.gate_madds,
    }  # fmt: skip


def _counted(limit: Limit, result: Result, final: nn.Module, example: object) -> BudgetOutcome:
    metric, convention = limit.metric, limit.config.convention
    reached = result.dynamic.madds if result.dynamic else cost_of(final, example, metric, convention)
    return BudgetOutcome(
        metric=metric, convention=convention, limit=limit.limit, reached=reached, share=reached / limit.dense
    )


def _timed(aim: Aim, share: Ratio) -> BudgetOutcome:
    return BudgetOutcome(
        metric="latency", runtime=aim.runtime, limit=aim.limit, note=aim.note, reached=share.value,
        share=share.value, low=share.low, high=share.high,
    )  # fmt: skip


def _final_network(session: Session, cut: Cut | None) -> tuple[nn.Module, PrunePlan | None, Cut | None]:
    """The network as it is handed out, its plan, and what is known of its cut now."""
    best = session.best
    if session.recipe.shrink is None:
        return best, session.cut, cut
    gates: Literal["keep", "fold"] = "fold" if _only_masks(best) else session.settings.gates
    if session.mask is None or cut is None:
        if gates == "fold" and find_gates(best):
            best = fold(best)
        return best, session.cut, cut
    plan = session.mask
    small = compact(best, plan, session.example, gates=gates)
    masked, leak = _score(best, session).error, reshape.leak(session, best, plan)
    with reshape.unmasked(best):
        gated = _score(best, session).error
    cut = replace(
        cut, compact_error=_score(small, session).error, final_masked_error=masked, final_gated_error=gated,
        final_leak=leak,
    )  # fmt: skip
    return small, plan if session.cut is None else compose(session.cut, plan), cut


def _only_masks(model: nn.Module) -> bool:
    """Whether the gates do nothing that outlives the cut."""
    return all(gate.MASK_ONLY for gate in find_gates(model).values())


def _score(model: nn.Module, session: Session) -> Score:
    return evaluate(model, session.data.val, session.fabric, full_precision=True, classes=session.data.num_classes)


def _costs(model: nn.Module, example: object) -> dict[str, Any]:
    return asdict(Costs.of(model, example)) | {"gate_madds": profile(model, example).gate_madds}


def _latency_share(result: Result, session: Session, final: nn.Module, budget: BudgetConfig) -> Ratio:
    """What the finished network really takes of the dense one's time, where the budget asks for it."""
    dense = blank_model(session.recipe, session.data.num_classes).eval()
    example = session.example[:1].repeat_interleave(budget.batch, dim=0).cpu()
    models = {"dense": dense, "compact": copy.deepcopy(final).cpu()}
    limit = (budget.latency or 1.0) * (1 + LATENCY_TOLERANCE)
    return _time(result, models, example, budget.runtime, budget.threads, doubted_above=limit)


def _measure(result: Result, session: Session, final: nn.Module) -> None:
    known = result.budget is not None and result.budget.timed  # in the runtime that the budget is about
    if known or not session.recipe.output.latency:
        return
    dense = session.place(blank_model(session.recipe, session.data.num_classes)).eval()
    try:
        _time(result, {"dense": dense, "compact": final}, session.example[:1], "eager", None)
    except ShrinkError as error:
        log.warning("latency was not measured: %s", error)


def _time(
    result: Result,
    models: dict[str, nn.Module],
    example: object,
    runtime: RuntimeLike,
    threads: int | None,
    *,
    doubted_above: float = math.inf,
) -> Ratio:
    """Time both networks side by side, and keep the figures with where they were taken.

    Where a network lies in memory differs from one loading to the next, and can be worth a tenth of a tiny network's
    time. So a share above the given one is measured twice more, and the one in the middle counts.
    """
    from pcshrink.measure.latency import compare

    tries = [compare(models, example, runtime, threads=threads)]
    if tries[0].ratio("compact", "dense").value > doubted_above:
        tries += [compare(models, example, runtime, threads=threads) for _ in range(2)]
    timed = sorted(tries, key=lambda found: found.ratio("compact", "dense").value)[len(tries) // 2]
    for name, target in (("dense", result.dense), ("compact", result.compact)):
        timing = timed.results[name]
        target |= {
            "latency_ms": timing.median_ms, "latency_low_ms": timing.low_ms, "latency_high_ms": timing.high_ms,
            "latency_runtime": timing.runtime, "latency_batch": timing.batch, "latency_threads": timing.threads,
        }  # fmt: skip
    return timed.ratio("compact", "dense")


def _write(result: Result, session: Session, final: nn.Module, plan: PrunePlan | None) -> None:
    recipe = session.recipe
    _, arguments = make_model(recipe.model.name, recipe.model.args, session.data.num_classes)
    metrics = {"error": result.compact["error"], "dense": result.dense, "compact": result.compact}
    path = save(
        result.model_dir, final, plan, _builder(recipe.model.name), builder_args=arguments,
        metrics=metrics, preprocessing=session.data.preprocessing,
    )  # fmt: skip
    result.files["model"] = str(path)
    result.files |= write_exports(
        recipe.output.formats, final, session.example, result.folder, session.data.preprocessing
    )
    result.files |= {"metrics": str(result.folder / "metrics.jsonl"), "recipe": str(result.folder / "recipe.yaml")}
    result.files["result"] = str(result.save())


def _builder(name: str) -> str:
    """The model's name with the library it comes from, so that the file says plainly what it wants to run."""
    source, short = resolve(name)
    return f"{source}:{short}" if source else name
