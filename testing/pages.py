"""Runs the Python code of the documentation: every block of a page in order, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from testing.project import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)

# What most pages take for granted: a network, an example, some batches.
COMMON = """
import torch
import torch.nn.functional as F

import pcshrink as pcs
from pcshrink.data import load_dataset
from pcshrink.models import build

torch.manual_seed(0)
model, example_input, steps = build("digitsnet"), torch.zeros(2, 1, 16, 16), 4
train_loader = loader = list(load_dataset("digits").train.batches(0))[:1] * steps
"""
CUT = """
model = build({name!r})
example = torch.rand({shape})
shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(ratio=0.5, total_steps=4))
plan = shrinker.plan(cut="selected")
dense, small = build({name!r}), pcs.compact(model, plan, example, gates="fold")
"""
# What single pages talk about on top of that.
MORE = {
    "docs/deploy.md": CUT.format(name="resnet20", shape=(2, 3, 32, 32)),
    "docs/integrations.md": CUT.format(name="resnet20", shape=(2, 3, 32, 32))
    + 'pcs.save("runs/faster", small, plan, "pcshrink:resnet20")',
    "docs/latency.md": CUT.format(name="digitsnet", shape=(1, 1, 16, 16)),
    "docs/data.md": """
from pathlib import Path
from PIL import Image
for part, grey in (("train", 0), ("val", 50)):
    for name in ("one", "two"):
        Path("images", part, name).mkdir(parents=True)
        Image.new("RGB", (40, 40), (grey, grey, len(name))).save(Path("images", part, name, "1.png"))
Image.new("RGB", (40, 40)).save("cat.jpg")
""",
    "docs/results.md": f"""
from pathlib import Path
Path("zoo").symlink_to({str(ROOT / "zoo")!r})
""",
    "docs/report.md": """
from pcshrink.train import load_recipe, train
train(load_recipe("digits"), "runs/r20", quiet=True)
""",
}


def name_of(page: Path) -> str:
    """The page's path as the repository has it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page, each with the line on which its code begins."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in _BLOCK.finditer(text)]


def run(page: Path) -> dict[str, Any]:
    """Run the blocks of a page in order; an error names the line of the page."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(COMMON + MORE.get(name_of(page), ""), f"set-up of {name_of(page)}", "exec"), names)
    for line, code in blocks(page):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
    return names
