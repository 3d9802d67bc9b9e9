"""What is run and what is refused, before any child begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from pcshrink.cli.main import main
from pcshrink.errors import ConfigError
from pcshrink.measure import widths
from pcshrink.methods.registry import method_class, method_names
from pcshrink.models import create
from pcshrink.sweep.ablate import ablate, asked_for, recipe_of
from pcshrink.sweep.ablations import NAMED
from pcshrink.sweep.choice import all_choices, read_choice
from pcshrink.sweep.compare import compare, trained_epochs
from pcshrink.sweep.folder import open_sweep
from pcshrink.sweep.paper import BASELINE, PAPER
from pcshrink.sweep.runs import Run, plain
from pcshrink.sweep.start import common_start, given_weights
from pcshrink.sweep.vary import dense_only, with_budget, with_method, with_overrides
from pcshrink.train.recipe.read import load_recipe
from testing.training import TINY, tiny


def shrink_of(recipe: Any) -> dict[str, Any]:
    section: dict[str, Any] = recipe.model_dump(mode="json")["shrink"]
    return section


def test_another_method_keeps_what_both_have_and_nothing_else() -> None:
    recipe = tiny(shrink={"budget": {"madds": 0.5}, "strength": 3.0, "alpha": 0.2, "min_channels": 3, "gates": "fold"})
    lasso, truncation, random = (shrink_of(with_method(recipe, name)) for name in ("lasso", "truncation", "random"))
    assert (lasso["strength"], lasso["alpha"], lasso["min_channels"]) == (3.0, 0.2, 3)
    assert truncation["alpha"] == 0.2
    assert "strength" not in truncation
    assert random["min_channels"] == 3
    assert "alpha" not in random
    assert random["budget"]["madds"] == truncation["budget"]["madds"] == 0.5


def test_a_method_without_a_budget_gets_none_and_a_dynamic_one_keeps_its_gates() -> None:
    recipe = tiny()
    assert shrink_of(with_method(recipe, "lasso"))["budget"] is None
    section = shrink_of(with_method(recipe, "pcs-input"))
    assert (section["budget"], section["gates"], section["compact_every"]) == (None, "keep", 0)


def test_epochs_in_which_nothing_is_trained_do_not_count() -> None:
    recipe = tiny(epochs={"dense": 1, "warmup": 1, "shrink": 2, "settle": 3}, distill=None)
    assert trained_epochs(recipe, method_class("pcs")) == 6
    assert trained_epochs(recipe, method_class("surgeon")) == 4


@pytest.mark.parametrize("name", method_names())
def test_every_method_can_take_the_place_of_the_recipes(name: str) -> None:
    assert shrink_of(with_method(tiny(), name))["method"] == name


@pytest.mark.parametrize("text", all_choices())
def test_every_row_of_a_comparison_of_all_has_a_recipe(text: str) -> None:
    choice = read_choice(text)
    section = shrink_of(with_overrides(with_method(tiny(), choice.name), choice.overrides))
    assert section["method"] == choice.name
    for setting in choice.overrides:
        key, _, value = setting.removeprefix("shrink.").partition("=")
        assert section[key] == value
    assert choice.label.replace("-", "").replace(".", "").isalnum()


def test_a_comparison_of_all_has_its_controls_and_all_pruners_of_the_peer() -> None:
    rows = all_choices()
    assert set(method_names()) < set(rows)
    assert len({read_choice(text).label for text in rows}) == len(rows)
    assert {"pcs+allocation=uniform", "random", "scratch"} < set(rows)
    assert {"torch-pruning", "torch-pruning+importance=bn-scale", "torch-pruning+importance=magnitude"} < set(rows)


def test_a_budget_keeps_what_is_limited_and_how_it_is_counted() -> None:
    recipe = tiny(shrink={"budget": {"params": 1000, "convention": "paper"}})
    budget = shrink_of(with_budget(recipe, 0.3))["budget"]
    assert (budget["params"], budget["madds"], budget["convention"]) == (0.3, None, "paper")
    assert shrink_of(with_budget(tiny(shrink={}), 0.3))["budget"]["madds"] == 0.3
    assert shrink_of(with_budget(recipe, None))["budget"] is None


def test_the_dense_start_is_the_recipes_dense_phase(tmp_path: Path) -> None:
    recipe = tiny()
    assert dense_only(recipe).epochs.total == dense_only(recipe).epochs.dense == recipe.epochs.dense
    with open_sweep(tmp_path / "out", recipe) as sweep:
        start = common_start(sweep)
    assert start.epochs.dense == 0
    assert start.epochs.total == recipe.epochs.total - recipe.epochs.dense
    assert start.model.weights == (tmp_path / "out" / "dense" / "model" / "model.safetensors").resolve()
    assert start.optimizer == recipe.optimizer


def test_given_weights_take_the_place_of_the_dense_phase(tmp_path: Path) -> None:
    weights = tmp_path / "dense.pt"
    torch.save(create("digitsnet", widths=[8, 8, 16]).state_dict(), weights)
    recipe = given_weights(tiny(), weights)
    assert (recipe.epochs.dense, recipe.model.weights) == (0, weights.resolve())
    with open_sweep(tmp_path / "out", recipe) as sweep:
        assert plain(common_start(sweep)) == plain(recipe)
    torch.save(create("digitsnet", widths=[8, 8, 16]).state_dict(), weights)
    with pytest.raises(ConfigError, match="different: the dense weights"), open_sweep(tmp_path / "out", recipe):
        pass


def test_equal_runs_share_a_folder_and_others_do_not(tmp_path: Path) -> None:
    recipe = tiny()
    other = with_overrides(recipe, ["shrink.alpha=0.3"])
    with open_sweep(tmp_path, recipe) as sweep:
        first = sweep.place(Run("first", recipe))
        assert sweep.place(Run("second", with_overrides(recipe, ["output.onnx=true"]))) == first
        assert sweep.place(Run("second", other)).name == "second"
        with pytest.raises(ConfigError, match="second holds a run of another recipe"):
            sweep.place(Run("second", with_overrides(recipe, ["shrink.alpha=0.4"])))
    with open_sweep(tmp_path, recipe) as sweep:
        assert sweep.place(Run("third", other)).name == "second"


def test_align_auto_is_one_number_for_all_runs_even_without_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widths, "measure_alignment", lambda runtime, threads: {"eager": 4}[runtime])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with open_sweep(tmp_path, tiny(shrink__align="auto")) as sweep:
        assert shrink_of(sweep.recipe)["align"] == 4
    monkeypatch.setattr(widths, "measure_alignment", lambda runtime, threads: 8)
    with open_sweep(tmp_path, tiny(shrink__align="auto")) as sweep:
        assert shrink_of(sweep.recipe)["align"] == 4


def test_only_one_process_works_in_a_folder(tmp_path: Path) -> None:
    with (
        open_sweep(tmp_path, tiny()),
        pytest.raises(ConfigError, match="another process works in"),
        open_sweep(tmp_path, tiny()),
    ):
        pass


def test_a_child_that_outlives_its_command_keeps_the_folder(tmp_path: Path) -> None:
    with open_sweep(tmp_path, tiny()) as sweep:
        waits = [sys.executable, "-c", "input()"]
        child = subprocess.Popen(waits, stdin=subprocess.PIPE, pass_fds=(sweep.lock,), text=True)
    with pytest.raises(ConfigError, match="or a training that it began"), open_sweep(tmp_path, tiny()):
        pass
    child.communicate("\n", timeout=60)
    with open_sweep(tmp_path, tiny()):
        pass


@pytest.mark.parametrize("name", NAMED)
def test_named_ablations_are_the_papers_tables(name: str) -> None:
    labels = [setting.label for setting in NAMED[name].settings]
    assert len(set(labels)) == len(labels)
    recipes = [plain(recipe_of(tiny(), setting)) for setting in NAMED[name].settings]
    assert len({json.dumps(recipe) for recipe in recipes}) == len(recipes)
    rows = PAPER[name][1]
    assert {row.setting for row in rows} <= set(labels)
    assert all(row.error < 40 and row.madds <= BASELINE.madds for row in rows)


@pytest.mark.parametrize("recipe", ["cifar10-resnet20", "cifar10-resnet20-taught", "imagenet-resnet18-b"])
def test_built_in_recipes_have_all_named_ablations(recipe: str) -> None:
    for ablation in NAMED.values():
        for setting in ablation.settings:
            recipe_of(load_recipe(recipe), setting)


def test_without_a_generator_the_network_is_trained_as_long() -> None:
    without, with_gates = (recipe_of(tiny(), setting) for setting in NAMED["generator"].settings)
    assert without.shrink is None
    assert without.epochs.dense == with_gates.epochs.total
    assert shrink_of(with_gates)["gates"] == "keep"


def test_the_papers_figures_are_those_printed() -> None:
    by_name = {(name, row.setting): row for name, (_, rows) in PAPER.items() for row in rows}
    truncation = by_name["truncation", "truncation, 30 %"]
    assert (truncation.error, truncation.madds, truncation.mem_access, truncation.latency) == (35.9, 1.0, 15.0, 19.4)
    assert truncation.change == pytest.approx(6.3)
    assert by_name["k", "K = 3/4 C"].madds_share == pytest.approx(0.5 / 1.8)
    assert by_name["alpha", "alpha = 0.5"].change == pytest.approx(1.1)
    assert by_name["lambda", "C, lambda = 8e-6"].latency_share == pytest.approx(12.2 / 18.9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["methods", "fpgn"], "unknown method 'fpgn', did you mean 'fpgm'"),
        (["methods", "trunkation"], "did you mean 'truncation'"),
        (["compare", "digits", "--methods", "pcs,lassoo"], "unknown method 'lassoo', did you mean 'lasso'"),
        (["compare", "digits", "--methods", "pcs+allocation"], "is written as key=value, got 'allocation'"),
        (["compare", "digits", "--methods", "pcs+alocation=x"], "pcs has no setting 'alocation'; did you mean 'alloc"),
        (["compare", "digits", "--methods", "pcs,"], "--methods wants a list such as a,b"),
        (["compare", "digits", "--budgets", "0.6,1.2"], "budgets must be shares above 0 and below 1, such as 0.43"),
        (["compare", "digits", "--budgets", "0"], "budgets must be shares above 0 and below 1"),
        (["compare", "digits", "--budgets", "half"], "--budgets wants shares such as 0.6,0.43, got 'half'"),
        (["compare", "digits", "--seeds", "0"], "seeds must be a whole number of at least 1, got 0"),
        (["compare", "digits", "--jobs", "0"], "jobs must be a whole number of at least 1, got 0"),
        (["compare", "digits", "--weights", "nowhere.pt"], "nowhere.pt is missing"),
        (["compare", "digit"], "did you mean digits?"),
        (["compare", "cifar10-resnet20-dense"], "has no shrink section, so there is nothing to compare"),
        (["ablate", "cifar10-resnet20-dense", "--table", "k"], "has no shrink section, so there is nothing to ablate"),
        (["ablate", "digits"], "give either --over SECTION.KEY=VALUE,VALUE or --table, one of k, alpha"),
        (["ablate", "digits", "--table", "alfa"], "no ablation is called 'alfa'; did you mean alpha?"),
        (["ablate", "digits", "--table", "zzz"], "no ablation is called 'zzz'; known are k, alpha, lambda"),
        (["ablate", "digits", "--over", "shrink.alpha"], "--over wants section.key=value,value"),
        (["ablate", "digits", "--over", "shrink.alpha=0.1,,"], "--over wants section.key=value,value"),
        (
            ["ablate", "digits", "--over", "shrink.alpha=0.1,3"],
            "shrink.alpha: must be a number above 0 and below 1; got 3",
        ),
        (["ablate", "digits", "--over", "shrink.alfa=0.1"], "shrink.alfa: unknown key; did you mean 'alpha'?"),
        (["ablate", "digits", "--over", "epochs.dense=1,2"], "all runs share epochs.dense"),
        (["ablate", "digits", "--over", "shrink.alpha=0.1", "--seeds", "0"], "seeds must be a whole number"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = ["--out", str(tmp_path / "out")] if words[0] != "methods" else []
    monkeypatch.setattr(sys, "argv", ["pcshrink", *words, *out])
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in told
    assert len(told.splitlines()) == 1
    assert not list((tmp_path / "out").glob("*/log.txt"))  # nothing was run


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds other files \(notes\.txt\); choose another --out"):
        compare(tiny(), tmp_path, methods=["pcs"])
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["notes.txt"]
    with pytest.raises(ConfigError, match="is a file; --out wants a folder"):
        ablate(tiny(), tmp_path / "notes.txt", table="k")


def test_a_finished_sweep_of_another_recipe_is_left_alone(tmp_path: Path) -> None:
    with open_sweep(tmp_path, tiny()):
        pass
    with pytest.raises(ConfigError, match=r"of another recipe \(different: epochs, shrink\); give the same"):
        compare(tiny(epochs__settle=9, shrink__strength=1.0), tmp_path, methods=["pcs"])


def test_a_run_of_a_method_that_is_not_known_here_does_no_harm(tmp_path: Path) -> None:
    with open_sweep(tmp_path, tiny()):
        pass
    (tmp_path / "foreign-s0").mkdir()
    foreign = TINY | {"shrink": {"method": "foreign"}}
    (tmp_path / "foreign-s0" / "recipe.yaml").write_text(yaml.safe_dump(foreign))
    with open_sweep(tmp_path, tiny()) as sweep:
        assert sweep.place(Run("own", tiny())).name == "own"


def test_combinations_and_brackets_of_over() -> None:
    name, ablation = asked_for(["shrink.alpha=0.1,0.5", "shrink.ratio={a*: 0.5, b*: 0.2},0.5"], None)
    assert name == "shrink.alpha+shrink.ratio"
    assert [setting.changes for setting in ablation.settings] == [
        ("shrink.alpha=0.1", "shrink.ratio={a*: 0.5, b*: 0.2}"),
        ("shrink.alpha=0.1", "shrink.ratio=0.5"),
        ("shrink.alpha=0.5", "shrink.ratio={a*: 0.5, b*: 0.2}"),
        ("shrink.alpha=0.5", "shrink.ratio=0.5"),
    ]
