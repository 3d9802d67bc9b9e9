"""The documentation: its Python code runs, its links lead somewhere, every page is in the site's contents."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from pcshrink.cli.main import app
from pcshrink.train.recipe.read import load_recipe, recipe_names
from testing.hurry import few_digits, short_recipes, short_timings
from testing.pages import PAGES, blocks, name_of, run
from testing.project import ROOT

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
MADE_BY_HOOKS = {"contributing.md", "changelog.md", "security.md"}
WITH_CODE = [page for page in PAGES if blocks(page)]


@pytest.fixture
def hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fewer digits, shorter recipes and measurements: the code of a page runs as it stands, only sooner."""
    import torch

    from pcshrink.data import digits
    from pcshrink.data.registry import DATASETS
    from pcshrink.runtime.registry import RUNTIMES
    from pcshrink.train.recipe import read

    monkeypatch.setattr(digits, "load_digits", few_digits(digits.load_digits))
    monkeypatch.setattr(read, "load_recipe", short_recipes(read.load_recipe))
    short_timings(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for registry in (DATASETS, RUNTIMES):
        for name in {"shapes", "mine"} & set(registry):  # what pages register
            registry.unregister(name)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.train
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
@pytest.mark.usefixtures("hurry")
def test_code_runs(page: Path) -> None:
    run(page)


RECIPE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def recipes(page: Path) -> list[str]:
    return RECIPE.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [page for page in PAGES if recipes(page)], ids=name_of)
def test_recipes_can_be_read(page: Path, tmp_path: Path) -> None:
    for text in recipes(page):
        (tmp_path / "recipe.yaml").write_text(text)
        load_recipe(tmp_path / "recipe.yaml")


COMMAND = re.compile(r"(?:^ {4}|`)pcshrink ([a-z][^`#\n]*)", re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """What a page tells the reader to type, as words; lines that end in a backslash are joined."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    text = BLOCK.sub(lambda block: block[0] if block[1] else textwrap.indent(block[2], "    "), text)
    return [shlex.split(line) for line in COMMAND.findall(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_commands_exist(page: Path) -> None:
    for words in commands(page):
        command = typer.main.get_command(app)
        options = set()
        for word in words:
            inner = getattr(command, "commands", {})
            command = inner.get(word, command)
            options |= {name for each in command.params for name in each.opts}
        assert not getattr(command, "commands", {}), f"no such command: pcshrink {' '.join(words)}"
        unknown = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} - options - {"--help"}
        assert not unknown, f"no such option: pcshrink {' '.join(words)}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "results.md"], ids=name_of)
def test_recipes_exist(page: Path) -> None:
    """Those that a page names; results name the recipes of their time."""
    for words in commands(page):
        if words[0] in ("train", "compare", "ablate", "recipes") and len(words) > 1:
            name = words[1].partition(">")[0]
            own = name.endswith((".yaml", ".yml")) or name.startswith("-") or not name or name.isupper()
            assert own or name in recipe_names(), f"no such recipe: pcshrink {' '.join(words)}"


def links(page: Path) -> list[str]:
    """Links to files of the repository; code is left out, and so are addresses."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = [first or second for first, second in LINK.findall(text)]
    return [link for link in found if not link.startswith(("http://", "https://", "mailto:"))]


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("[A-Z]*.md")], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)}: {link}"


def test_every_page_is_in_the_contents() -> None:
    class Loose(yaml.SafeLoader):
        """Reads over tags that only mkdocs knows."""

    Loose.add_multi_constructor("", lambda loader, suffix, node: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loose)["nav"]

    def files(part: Any) -> Iterator[str]:
        for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else [part]:
            yield from [value] if isinstance(value, str) else files(value)

    listed = set(files(nav))
    there = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert listed - MADE_BY_HOOKS == there


def test_the_picker_of_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\na = 1\n```\n\n```text\nno = code\n```\n\n```python\nb = a\n```\n")
    assert blocks(page) == [(4, "a = 1\n"), (12, "b = a\n")]
