"""Where things are."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
DENSE = Path("zoo/resnet20-dense/model.safetensors")  # from the project's folder, where runs are started
KEPT = Path(__file__).resolve().parent / "kept"
UNFINISHED = Path(__file__).resolve().parent / "unfinished"
README = PROJECT / "README.md"
FINDINGS = PROJECT / "docs" / "findings.md"
ABLATIONS_PAGE = PROJECT / "docs" / "ablations.md"
RIVALS_PAGE = PROJECT / "docs" / "rivals.md"
