"""Who may know what, read off the source itself: nothing outside ``methods/pcs`` names what is inside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from pcshrink.config import MethodConfig
from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.methods.pcs.gate import SalienceGate
from pcshrink.surgery.gate import Gate

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "pcshrink"
SOURCES = sorted(PACKAGE.rglob("*.py"))
FIELDS = {part for leaf in SalienceGate.AXES.keys() - Gate.AXES.keys() for part in leaf.split(".")}
SWITCHES = set(SalienceGate.SWITCHES) - set(Gate.SWITCHES)
SETTINGS = {field.name for field in fields(ShrinkConfig)} - {field.name for field in fields(MethodConfig)}
# Words that say something else elsewhere: of any layer, any optimizer, any cost.
PLAIN = {"weight", "bias", "lr", "momentum", "optimizer", "price"}
OWN_WORDS = ({"lam_base", "salience", "hidden", "HardSigmoid"} | FIELDS | SWITCHES | SETTINGS) - PLAIN
# Folder or file -> what its words mean there.
FINE = {
    "models": {"fc1", "fc2", "hidden"},  # a network may call its layers so
    "data": {"generator"},  # random numbers come from generators
    "proof": {"generator"},
    "runtime/onnx_layout.py": {"HardSigmoid"},  # an operation of ONNX, by whatever a file has it
    "surgery/gate.py": {"salience"},  # the one kind of gate that files of the first schema know
    "sweep": {"generator", "running", "alpha"},  # the paper's tables are named after its settings
    "train": {"alpha", "salience"},  # mixup's, and what histories call scores
    "report": {"salience"},  # as histories have it
    # Other methods have settings, layers and saliences of their own, and the registry lists kinds of gates.
    "methods/cgnet.py": {"alpha", "threshold"},
    "methods/dgc.py": {"fc1", "fc2", "hidden", "salience"},
    "methods/fbs.py": {"salience"},
    "methods/manidp.py": {"fc1", "fc2", "hidden", "salience", "threshold"},
    "methods/proximal.py": {"strength"},
    "methods/surgeon.py": {"allocation"},
    "methods/torch_pruning.py": {"scope"},
    "methods/registry.py": {"salience"},
    "methods/group.py": {"running"},  # the public name of what channels are ranked by
}
BUILDING_ON_PCS = {"methods/truncation.py", "methods/lasso.py"}
# The public name, the default of attach_ and of `inspect`.
NAMING_THE_DEFAULT = {"__init__.py", "shrinker.py", "report/inspect.py"}


INSIDE = ("pcshrink.methods.pcs", "pcshrink.methods.truncation", "pcshrink.methods.lasso")


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Modules with the names taken from them."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield node.module or "", [alias.name for alias in node.names]


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_nobody_else_imports_from_the_paper_s_method(path: Path) -> None:
    name = relative(path)
    if name.startswith("methods/pcs/") or name in BUILDING_ON_PCS:
        return
    taken = [(m, n) for m, names in imports(path) for n in (names or [""]) if f"{m}.{n}".startswith(INSIDE)]
    allowed = [("pcshrink.methods.pcs.config", "ShrinkConfig")] if name in NAMING_THE_DEFAULT else []
    assert [entry for entry in taken if entry not in allowed] == []


def docstrings(tree: ast.AST) -> set[int]:
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, holders)]
    return {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}


def words(tree: ast.AST) -> Iterator[str]:
    """Attributes, fields, arguments, functions, and names of tensors in texts; not local variables or prose."""
    prose = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield from node.value.split(".") if " " not in node.value else ()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_nobody_else_names_what_is_inside_the_paper_s_method(path: Path) -> None:
    name = relative(path)
    if name.startswith("methods/pcs/") or name in BUILDING_ON_PCS:
        return
    found = set(words(parse(path))) & OWN_WORDS
    assert found - FINE.get(name, set()) - FINE.get(name.partition("/")[0], set()) == set()


def test_no_exception_is_left_over() -> None:
    for place, fine in FINE.items():
        files = [path for path in SOURCES if relative(path) == place or relative(path).startswith(f"{place}/")]
        assert fine == fine & {word for path in files for word in words(parse(path))}, place


def test_the_reading_itself() -> None:
    code = 'def f(gate):\n    """gate.running"""\n    gate.running = x["a.generator.fc1"]\n    blend: int = 0\n'
    assert set(words(ast.parse(code))) & OWN_WORDS == {"running", "generator", "fc1", "blend"}
    assert not set(words(ast.parse('"""running"""\nrunning = 1\nprint("a running salience")'))) & OWN_WORDS
