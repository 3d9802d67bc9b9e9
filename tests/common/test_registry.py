"""Names lead to entries: built in, registered, or code of the user's own, which runs only where it is trusted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pcshrink.common.registry import Registry, find_code
from pcshrink.errors import ConfigError

pytestmark = pytest.mark.unit

Change = Callable[[str], str]


def change_of(name: str, thing: Change) -> Change:
    if not callable(thing):
        raise ConfigError(f"the change {name!r} must be callable")
    return thing


@pytest.fixture
def changes() -> Registry[Change]:
    return Registry("change", {"words": "string:capwords", "broken": "no_such_module:x"}, change_of)


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the working directory that leaves a mark when it is imported."""
    (tmp_path / "own_changes.py").write_text(
        "from pathlib import Path\n"
        "Path('imported').touch()\n"
        "def twice(text):\n    return text * 2\n"
        "class Box:\n    thrice = staticmethod(lambda text: text * 3)\n"
        "number = 3\n"
    )
    (tmp_path / "fails.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_changes", raising=False)
    return tmp_path


def test_builtin_entries_are_imported_when_used(changes: Registry[Change]) -> None:
    assert list(changes) == ["words", "broken"]  # a module that does not exist is no problem until then
    assert changes.get("words")("ab cd") == "Ab Cd"


def test_for_a_while_only_what_is_named_is_known(changes: Registry[Change]) -> None:
    changes.register("upper", str.upper)
    with changes.only(lower=str.lower):
        assert list(changes) == ["words", "broken", "lower"]
        assert changes.get("lower")("A") == "a"
    with pytest.raises(ConfigError, match="must be callable"), changes.only(number=3):  # type: ignore[arg-type]
        pass
    assert list(changes) == ["words", "broken", "upper"]


def test_registered_entries_are_like_built_in_ones(changes: Registry[Change]) -> None:
    changes.register("upper", str.upper)
    assert changes.get("upper")("a") == "A"
    assert "upper" in changes
    assert str(changes) == "words, broken or upper"
    with pytest.raises(ConfigError, match="there is a change 'upper' already"):
        changes.register("upper", str.lower)
    changes.register("words", str.lower, replace=True)
    assert changes.get("words")("AB") == "ab"
    changes.unregister("words")
    assert changes.get("words")("ab") == "Ab"
    assert len(changes) == 3


def test_things_need_no_name(changes: Registry[Change]) -> None:
    assert changes.get(str.upper)("a") == "A"


@pytest.mark.parametrize("name", ["", " ", "a:b", 3])
def test_names_that_are_none(changes: Registry[Change], name: str) -> None:
    with pytest.raises(ConfigError, match="the name of a change must be a text without a colon"):
        changes.register(name, str.upper)


def test_things_of_another_kind(changes: Registry[Change]) -> None:
    with pytest.raises(ConfigError, match="the change 'three' must be callable"):
        changes.register("three", 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no change 'three' was registered"):
        changes.unregister("three")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("word", r"did you mean 'words'\?"),
        ("wo", r"did you mean 'words'\?"),
        ("brokenwords", r"did you mean 'broken' or 'words'\?"),
        ("xyz", "known are words, broken; one of your own is named as package.module:callable"),
        ("own_changes:", "known are"),
        (":twice", "known are"),
        ("own changes:twice", "known are"),
    ],
)
def test_unknown_names(changes: Registry[Change], name: str, hint: str) -> None:
    for look in (changes.get, changes.check):
        with pytest.raises(ConfigError, match=f"unknown change '{name}', {hint}"):
            look(name)


def test_code_runs_only_where_it_is_trusted(changes: Registry[Change], own_code: Path) -> None:
    assert changes.check("own_changes:twice") == "own_changes:twice"
    with pytest.raises(
        ConfigError, match=r"'own_changes:twice' is code of your own.*--trust.*pass the callable itself"
    ):
        changes.get("own_changes:twice")
    assert not (own_code / "imported").exists()
    assert changes.get("own_changes:twice", trust=True)("ab") == "abab"
    assert changes.get("own_changes:twice")("c") == "cc"  # it has run already
    assert changes.get("own_changes:Box.thrice", trust=True)("a") == "aaa"
    assert list(changes) == ["words", "broken"]
    with pytest.raises(ConfigError, match="the change 'own_changes:number' must be callable"):
        changes.get("own_changes:number", trust=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("own_changes:missing", "has no attribute 'missing'"),
        ("no_module_of_this_name:x", "No module named"),
        ("fails:x", "ZeroDivisionError: division by zero"),
    ],
)
@pytest.mark.usefixtures("own_code")
def test_code_that_cannot_be_found(name: str, reason: str) -> None:
    before = list(sys.path)
    with pytest.raises(ConfigError, match=f"cannot find '{name}': .*{reason}"):
        find_code(name)
    assert sys.path == before


def test_the_tables_of_names_import_nothing_heavy() -> None:
    """What a command line or a recipe needs to know the names."""
    code = (
        "import sys\n"
        "from pcshrink.data.registry import DATASETS\n"
        "from pcshrink.export.registry import EXPORT_FORMATS\n"
        "from pcshrink.runtime.registry import RUNTIMES\n"
        "print(DATASETS, EXPORT_FORMATS, RUNTIMES, sep='; ')\n"
        "assert not {'torch', 'numpy', 'onnx', 'pydantic', 'typer'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "digits, cifar10, folder, unlabelled or webdataset; onnx, pt2 or openvino; "
        "eager, compiled, onnxruntime or openvino\n"
    )
