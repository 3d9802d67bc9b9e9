"""The report of a real digits run, and a network's picture, in a real browser: wide, narrow, dark and on paper."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pcshrink.report.inspect import inspect_model
from pcshrink.report.inspect_page import inspection_page
from pcshrink.report.page import write_page, write_report
from pcshrink.report.timing import time_layers
from pcshrink.train.run import train
from testing.browser import Browser, browser, find_browser
from testing.training import tiny

CHROMIUM = find_browser()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
# Every picture as it is shown: name, left, width, height, whether anything in it is painted.
PICTURES = """[...document.querySelectorAll('svg.chart')].map(svg => {
  const box = svg.getBoundingClientRect(), style = getComputedStyle(svg);
  const shown = style.visibility === 'visible' && style.display !== 'none' && svg.querySelectorAll('path,rect').length;
  return [svg.getAttribute('aria-label'), box.left, box.width, box.height, !!shown];
})"""
# Words in pictures that stick out of them, or are too small to read.
BAD_WORDS = """[...document.querySelectorAll('svg.chart text')].map(text => {
  const box = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();
  const size = parseFloat(getComputedStyle(text).fontSize) * frame.width / text.ownerSVGElement.viewBox.baseVal.width;
  const out = box.left < frame.left - 2 || box.right > frame.right + 2;
  return out || size < 9.5 ? [text.textContent, size, box.left - frame.left, box.right - frame.right] : null;
}).filter(Boolean)"""
# Elements that are wider than the window and are not meant to be scrolled.
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') &&
  e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.tagName + '.' + e.className)"""
COLOURS = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report and an inspection; kept where PCSHRINK_SCREENSHOTS says, to be looked at."""
    folder = tmp_path_factory.mktemp("pages")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recipe = tiny(epochs={"dense": 1, "shrink": 2, "settle": 1})
    train(recipe, folder / "digits", quiet=True)
    torch.set_num_threads(threads)
    time_layers(folder / "digits", "eager")
    write_report([folder / "digits"], folder / "report.html")
    write_page(folder / "network.html", inspection_page(inspect_model("digitsnet", (1, 16, 16))))
    return {"report": folder / "report.html", "network": folder / "network.html"}


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    assert CHROMIUM is not None
    with browser(CHROMIUM) as opened:
        yield opened


def keep(tab: Browser, name: str, tmp_path: Path) -> None:
    tab.screenshot(tmp_path / f"{name}.png")
    assert (tmp_path / f"{name}.png").stat().st_size > 20_000
    if os.environ.get("PCSHRINK_SCREENSHOTS"):
        shutil.copy(tmp_path / f"{name}.png", os.environ["PCSHRINK_SCREENSHOTS"])


@pytest.mark.parametrize("name", ["report", "network"])
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, False), (1280, True)])
def test_every_figure_is_seen(
    name: str, width: int, dark: bool, pages: dict[str, Path], tab: Browser, tmp_path: Path
) -> None:
    tab.events.clear()
    tab.open(pages[name], width, dark=dark)
    assert tab.complaints() == []
    assert set(tab.requests()) == {pages[name].resolve().as_uri()}  # nothing leaves the file
    pictures = tab.ask(PICTURES)
    assert len(pictures) == (17 if name == "report" else 1)
    for label, left, wide, high, shown in pictures:
        assert shown, label
        assert left >= 0, label
        assert 300 <= wide <= width, label
        assert left + wide <= width, label
        assert high > 60, label
    assert tab.ask(BAD_WORDS) == []
    assert tab.ask(TOO_WIDE) == []
    assert tab.ask("document.documentElement.scrollWidth") <= width
    keep(tab, f"{name}-{width}{'-dark' * dark}", tmp_path)


@pytest.mark.parametrize("name", ["report", "network"])
def test_dark_is_dark_and_light_is_light(name: str, pages: dict[str, Path], tab: Browser) -> None:
    seen = {}
    for dark in (False, True):
        tab.open(pages[name], 1280, dark=dark)
        paper, ink = ([int(part) for part in text.strip("rgb()").split(",")] for text in tab.ask(COLOURS))
        seen[dark] = (sum(paper), sum(ink))
    assert seen[False][0] > 700 > 200 > seen[False][1]
    assert seen[True][0] < 120 < 600 < seen[True][1]


@pytest.mark.parametrize("name", ["report", "network"])
def test_it_prints(name: str, pages: dict[str, Path], tab: Browser) -> None:
    tab.open(pages[name], 1280)
    paper = tab.pdf()
    assert paper.startswith(b"%PDF-")
    assert paper.rstrip().endswith(b"%%EOF")
    assert paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") + paper.count(b"/Type /Page/") >= 1
    assert len(paper) > 20_000
