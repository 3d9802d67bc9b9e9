"""What killed writers left behind goes, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pcshrink.common.files import staged
from pcshrink.common.scratch import drop_leftovers, scratch_folder

KILLED_WHILE_WRITING = """
import os, signal
from pcshrink.common.files import staged
with staged("deep/result.json") as path:
    path.write_text("{")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING], cwd=tmp_path)
    assert [path.name for path in (tmp_path / "deep").glob(".result.json-*.tmp/*")] == ["result.json"]
    drop_leftovers(tmp_path)
    assert not list((tmp_path / "deep").iterdir())


def test_what_is_being_written_stays(tmp_path: Path) -> None:
    with staged(tmp_path / "a" / "result.json") as path:
        path.write_text("{}")
        drop_leftovers(tmp_path)
    assert (tmp_path / "a" / "result.json").read_text() == "{}"


def test_links_are_neither_removed_nor_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    (outside / ".a.txt-abcdefgh.tmp").mkdir(parents=True)
    inside.mkdir()
    (inside / ".b.txt-abcdefgh.tmp").symlink_to(outside)
    (inside / "elsewhere").symlink_to(outside)
    drop_leftovers(inside)
    assert (inside / ".b.txt-abcdefgh.tmp" / ".a.txt-abcdefgh.tmp").is_dir()


def test_a_scratch_folder_is_gone_afterwards(tmp_path: Path) -> None:
    with scratch_folder(dir=tmp_path) as folder:
        (folder / "a").touch()
    assert not list(tmp_path.iterdir())
