"""Rules about the source itself: import direction and weight, sizes, documented names, no pickles."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "pcshrink"

# From low to high: a module may import from its own layer and from those before it. The root package gathers
# the public names, so only the command line may import from it.
LAYERS = (
    "errors",
    "config",
    "common",
    "graph",
    "models",
    "coupling",
    "surgery",
    "proof",
    "runtime",
    "doctor",
    "measure",
    "methods",
    "shrinker",
    "budget",
    "artifact",
    "export",
    "data",
    "train",
    "report",
    "sweep",
    "pretrained",
    "integrations",
    "cli",
)
HEAVY = (
    "torch",
    "numpy",
    "yaml",
    "safetensors",
    "torchvision",
    "timm",
    "lightning",
    "lightning_fabric",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "transformers",
    "pydantic",
    "rich",
    "typer",
)
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve"}
LONGEST_FILE = 350
LONGEST_FUNCTION = 60

SOURCES = sorted(PACKAGE.rglob("*.py"))


def each_source() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def layer_of(name: str) -> str:
    """The layer of a dotted name inside the package: its first part; the root counts as the command line."""
    first = name.partition(".")[0]
    return "cli" if first in ("", "__init__", "__main__") else first


def imported_names(path: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Every import of this package, as dotted names below `pcshrink` ("" is the root itself)."""
    folder = ("pcshrink", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            base = ".".join((*above, *filter(None, [node.module])))
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name == "pcshrink" or name.startswith("pcshrink."):
                yield node, name.removeprefix("pcshrink").removeprefix(".")


def is_root_name(name: str) -> bool:
    """Whether the name is defined in the root package rather than being one of its modules."""
    first = name.partition(".")[0]
    return first not in LAYERS and not (PACKAGE / first).is_dir() and not (PACKAGE / f"{first}.py").is_file()


def test_there_is_source() -> None:
    assert SOURCES


def test_each_module_has_a_layer() -> None:
    tops = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in SOURCES}
    unknown = tops - set(LAYERS) - {"__init__", "__main__"}
    assert not unknown, f"place these in LAYERS: {sorted(unknown)}"


def test_folders_of_tests_are_named_after_packages() -> None:
    folders = {path.parent.name for path in ROOT.glob("tests/*/test_*.py")}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders <= packages | {"benchmarks"}  # a package beside pcshrink


@pytest.mark.parametrize("folder", ["tests", "testing", "benchmarks", "examples", "tools"])
def test_no_program_edits_the_search_path(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(parse(path)):
            edits = isinstance(node, ast.Call) and re.match(r"(sys\.path\.\w+|site\.addsitedir)\(", ast.unparse(node))
            assert not edits, where(path, node)


@each_source()
def test_imports_go_downwards(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return
    own = layer_of(path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."))
    for node, name in imported_names(path):
        target = "cli" if is_root_name(name) else layer_of(name)
        assert LAYERS.index(target) <= LAYERS.index(own), (
            f"{where(path, node)}: layer {own!r} imports pcshrink.{name}, which lies above it"
        )


COMMON = " ".join(f"import pcshrink.common.{path.stem};" for path in (PACKAGE / "common").glob("[a-z]*.py"))
MAIN = """
import contextlib, io
from pcshrink.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main()
"""


@pytest.mark.parametrize(
    ("code", "words", "allowed"),
    [
        ("import pcshrink", (), ()),
        ("import pcshrink; dir(pcshrink); pcshrink.ShrinkError", (), ()),
        (COMMON, (), ()),
        (MAIN, ("--help",), ("typer",)),
        (MAIN, ("train", "--help"), ("typer", "pydantic")),  # typer itself reads some types with pydantic
        (MAIN, ("--version",), ("typer",)),
    ],
    ids=["import", "light name", "common", "help", "help of a command", "version"],
)
def test_start_is_light(code: str, words: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    show = f"import sys; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}", *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= set(allowed)


def test_packages_can_be_imported_in_any_order() -> None:
    """Each one first in a process of its own: a circle of imports shows only from some of its members."""
    names = sorted({"pcshrink." + path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in SOURCES})
    names = [name for name in names if not name.rpartition(".")[2].startswith("_")]
    code = f"""
import importlib, os, traceback
import torch
for name in {names!r}:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], done.stderr


@each_source()
def test_files_and_functions_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST_FILE, f"{path.relative_to(ROOT)} has {lines} lines"
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{where(path, node)}: {node.name} has {length} lines"


def test_public_names_are_documented() -> None:
    import pcshrink

    pages = [page for page in (ROOT / "docs" / "api.md", ROOT / "README.md") if page.is_file()]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    missing = [name for name in pcshrink.__all__ if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    assert not missing, f"describe these in docs/api.md: {missing}"


def test_public_names_exist() -> None:
    import pcshrink

    assert len(set(pcshrink.__all__)) == len(pcshrink.__all__)
    assert [name for name in pcshrink.__all__ if not hasattr(pcshrink, name)] == []
    assert set(pcshrink.__all__) <= set(dir(pcshrink))
    everything: dict[str, object] = {}
    exec("from pcshrink import *", everything)
    assert set(pcshrink.__all__) <= set(everything)


def test_type_checkers_see_the_names_that_exist_at_run_time() -> None:
    import pcshrink

    block = next(node for node in parse(PACKAGE / "__init__.py").body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {
        alias.name: node.module.removeprefix("pcshrink.") for node in imports for alias in node.names if node.module
    }
    assert seen == pcshrink._HOMES
    assert set(seen) == set(pcshrink.__all__)


def test_packages_are_attributes() -> None:
    code = "import sys, pcshrink; assert 'pcshrink.common' not in sys.modules; print(pcshrink.common.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["pcshrink.common"], done.stderr
    import pcshrink

    assert {"measure", "methods", "train"} <= set(dir(pcshrink))
    for name in ("nothing_like_this", "_private"):
        with pytest.raises(AttributeError, match=f"module 'pcshrink' has no attribute '{name}'"):
            getattr(pcshrink, name)


def imports_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def unsafe_load(node: ast.AST) -> str | None:
    """What is wrong with this node, if it reads a file in a way that may run code from it."""
    if any(name.partition(".")[0] in PICKLES for name in imports_of(node)):
        return "imports a pickle module"
    if isinstance(node, ast.ImportFrom) and node.module == "torch" and "load" in [a.name for a in node.names]:
        return "imports torch.load under another name"
    if not isinstance(node, ast.Call):
        return None
    options = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
    if ast.unparse(node.func) == "torch.load" and options.get("weights_only") is not True:
        return "calls torch.load without weights_only=True"
    if "allow_pickle" in options and options["allow_pickle"] is not False:
        return "allows pickles"
    return None


@each_source()
def test_nothing_is_unpickled(path: Path) -> None:
    for node in ast.walk(parse(path)):
        problem = unsafe_load(node)
        assert problem is None, f"{where(path, node)}: {problem}"


@pytest.mark.parametrize(
    ("code", "safe"),
    [
        ("import pickle", False),
        ("from pickle import loads", False),
        ("from torch import load", False),
        ("torch.load(f)", False),
        ("torch.load(f, weights_only=False)", False),
        ("torch.load(f, weights_only=True)", True),
        ("np.load(f, allow_pickle=True)", False),
        ("np.load(f, allow_pickle=False)", True),
        ("import pickletools", True),
        ("json.load(f)", True),
    ],
)
def test_the_unpickling_rule_itself(code: str, safe: bool) -> None:
    assert all(unsafe_load(node) is None for node in ast.walk(ast.parse(code))) is safe
