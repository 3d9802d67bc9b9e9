"""The notebooks run from top to bottom in a kernel of their own, and draw what they promise."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from testing.project import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
HURRY = "from testing.hurry import hurry_\nhurry_()"


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def figures(notebook: nbformat.NotebookNode) -> int:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_there_are_two() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"quickstart", "own_model"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_kept_outputs_are_whole(path: Path) -> None:
    """What a reader sees without running anything: every cell was run, in order, without an error."""
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert figures(notebook) >= 3
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    printed = "".join(output.get("text", "") for cell in code for output in cell.outputs)
    assert not re.search(r"(?<![\w.])/(?:tmp|home|root|usr)/", printed), "a path of one machine"
    assert not [output for cell in code for output in cell.outputs if output.get("name") == "stderr"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.train
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = read(path)
    kept = figures(notebook)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(HURRY))
    done = NotebookClient(notebook, timeout=800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert figures(done) == kept
