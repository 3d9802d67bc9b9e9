"""Files are whole or not there, whatever happens while they are written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pcshrink.common.files import staged, write_bytes, write_new, write_text
from pcshrink.errors import CheckpointError, DataError


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def full(*_arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_text_and_bytes(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "folder" / "a.txt", "één\n")
    write_bytes(tmp_path / "new" / "folder" / "a.bin", [b"one", b"two"])
    assert content(tmp_path / "new" / "folder") == {"a.txt": "één\n", "a.bin": "onetwo"}


def test_others_may_read_it_as_the_umask_says(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_text(tmp_path / "written", "")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "written")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace"), (Path, "open")])
def test_a_failed_write_leaves_the_old_file(
    owner: object, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "a.txt", "old")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full)
        with pytest.raises(CheckpointError, match=r"a\.txt cannot be written: .*No space left.*before is unchanged"):
            write_text(tmp_path / "a.txt", "new")
    assert content(tmp_path) == {"a.txt": "old"}


def test_other_errors_pass_and_change_nothing(tmp_path: Path) -> None:
    def stopped() -> None:
        with staged(tmp_path / "a.txt") as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert content(tmp_path) == {}


def test_what_comes_with_a_file_is_there_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed, replace = [], Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: (placed.append(to.name), replace(self, to))[1])
    with staged(tmp_path / "a.xml") as temporary:
        temporary.write_text("names b.bin")
        temporary.with_name("b.bin").write_text("weights")
    assert placed == ["b.bin", "a.xml"]
    assert content(tmp_path) == {"a.xml": "names b.bin", "b.bin": "weights"}


def test_a_writer_that_wrote_nothing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be written"), staged(tmp_path / "a.txt"):
        pass


def test_the_error_is_the_callers(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        write_bytes(tmp_path / "file" / "a.bin", [b""], DataError)


def test_a_new_file_never_replaces_one(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"old")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a", b"new")
    assert content(tmp_path) == {"a": "old"}
