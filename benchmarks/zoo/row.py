"""What was found out about one architecture, and the file that keeps all of it, so that a long run can go on."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results.json"
PACKAGES = ("torch", "torchvision", "timm", "transformers", "ultralytics", "segmentation_models_pytorch", "monai",
            "diffusers", "torch-pruning")  # fmt: skip


@dataclass
class Row:
    """One line of the table; shares are parts of all madds and of all parameters."""

    name: str
    family: str
    shown: str
    params: int = 0
    groups: int = 0
    madds_share: float = 0.0
    params_share: float = 0.0
    differences: dict[str, float] = field(default_factory=dict)
    outcome: str = "failed"
    note: str = ""
    seconds: float = 0.0
    peer: str = ""

    @property
    def key(self) -> str:
        """What the row is kept under."""
        return f"{self.family}: {self.name}"

    def told(self, what: str) -> str:
        """One line on what was found, by ``prove`` or by the other library."""
        if what == "peer":
            return f"{self.name}: {self.peer}"
        worst = max(self.differences.values(), default=0)
        return (
            f"{self.name}: {self.outcome}, {self.groups} groups, {self.madds_share:.0%}, {worst:.1e}, "
            f"{self.seconds:.0f} s {self.note[:300]}"
        )


def versions() -> dict[str, str]:
    """The versions that results depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


class Kept:
    """All rows so far, on disk after each; rows of other versions of the packages do not count."""

    def __init__(self, path: Path = RESULTS) -> None:
        self.path, self.versions = path, versions()
        self.rows = self._read()

    def _read(self) -> dict[str, Row]:
        data = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        same = data.get("versions") == self.versions
        return {key: Row(**values) for key, values in data.get("rows", {}).items()} if same else {}

    def put(self, row: Row) -> None:
        """Keep a row, in place of an older one, beside those that another run has put there meanwhile."""
        self.rows = self._read() | {row.key: row}
        data = {"versions": self.versions, "rows": {k: asdict(r) for k, r in self.rows.items()}}
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self.path)
