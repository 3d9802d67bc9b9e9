"""What all parts share: files that are whole or not there, text tables, progress, and how to install."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from pcshrink.common import install, progress
from pcshrink.common.files import staged, write_bytes, write_new, write_text
from pcshrink.common.install import EXTRAS, install_hint
from pcshrink.common.progress import show_progress, track
from pcshrink.common.tables import text_table
from pcshrink.errors import CheckpointError, DataError

ROOT = Path(__file__).resolve().parent.parent


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def full(*_arguments: object) -> None:
    raise OSError(28, "No space left on device")


class TestFiles:
    def test_text_and_bytes(self, tmp_path: Path) -> None:
        write_text(tmp_path / "new" / "folder" / "a.txt", "één\n")
        write_bytes(tmp_path / "new" / "folder" / "a.bin", [b"one", b"two"])
        assert content(tmp_path / "new" / "folder") == {"a.txt": "één\n", "a.bin": "onetwo"}

    def test_others_may_read_it_as_the_umask_says(self, tmp_path: Path) -> None:
        (tmp_path / "plain").touch()
        write_text(tmp_path / "written", "")
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "written")]
        assert modes[0] == modes[1]

    @pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace"), (Path, "open")])
    def test_a_failed_write_leaves_the_old_file(
        self, owner: object, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_text(tmp_path / "a.txt", "old")
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, full)
            with pytest.raises(
                CheckpointError, match=r"a\.txt cannot be written: .*No space left.*before is unchanged"
            ):
                write_text(tmp_path / "a.txt", "new")
        assert content(tmp_path) == {"a.txt": "old"}

    def test_other_errors_pass_and_change_nothing(self, tmp_path: Path) -> None:
        def stopped() -> None:
            with staged(tmp_path / "a.txt") as temporary:
                temporary.write_text("half")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert content(tmp_path) == {}

    def test_what_comes_with_a_file_is_there_before_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        placed, replace = [], Path.replace
        monkeypatch.setattr(Path, "replace", lambda self, to: (placed.append(to.name), replace(self, to))[1])
        with staged(tmp_path / "a.xml") as temporary:
            temporary.write_text("names b.bin")
            temporary.with_name("b.bin").write_text("weights")
        assert placed == ["b.bin", "a.xml"]
        assert content(tmp_path) == {"a.xml": "names b.bin", "b.bin": "weights"}

    def test_a_writer_that_wrote_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="cannot be written"), staged(tmp_path / "a.txt"):
            pass

    def test_the_error_is_the_callers(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(DataError, match="cannot be written"):
            write_bytes(tmp_path / "file" / "a.bin", [b""], DataError)

    def test_a_new_file_never_replaces_one(self, tmp_path: Path) -> None:
        write_new(tmp_path / "a", b"old")
        with pytest.raises(FileExistsError):
            write_new(tmp_path / "a", b"new")
        assert content(tmp_path) == {"a": "old"}


class TestTables:
    def test_columns_line_up(self) -> None:
        rows = [["conv1", "conv", "432"], ["a.long.name", "", "1,000,000"]]
        assert text_table(rows, "<<>", head=["layer", "kind", "params"], total=["total", "", "1,000,432"]) == (
            "layer        kind     params\n"
            "-----------  ----  ---------\n"
            "conv1        conv        432\n"
            "a.long.name        1,000,000\n"
            "-----------  ----  ---------\n"
            "total              1,000,432"
        )

    def test_without_head_and_indented(self) -> None:
        assert text_table([["a", "why"], ["bb", ""]], "<", indent="  ") == "  a   why\n  bb"

    def test_nothing(self) -> None:
        assert text_table([]) == ""
        assert text_table([], head=["a", "b"]) == "a  b\n-  -"

    def test_rows_of_different_lengths_are_refused(self) -> None:
        with pytest.raises(ValueError, match="zip"):
            text_table([["a"], ["b", "c"]])


class TestProgress:
    def test_lines_come_now_and_then(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        clock = [0.0]
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        shown = show_progress("dense", 1000, done=100, seconds_between_lines=60)
        for second, done in ((30, 150), (60, 200), (90, 250), (119, 260)):
            clock[0] = second
            shown.update(done, "shrink")
        shown.say("epoch 1")  # a line as well: the next one can wait
        clock[0] = 178
        shown.update(300)
        clock[0] = 180
        shown.update(280)
        shown.close(finished=False)
        assert capsys.readouterr().err.splitlines() == [
            "shrink: 200 of 1,000, about 8 min left",
            "epoch 1",
            "shrink: 280 of 1,000, about 12 min left",
        ]

    def test_work_that_fails_is_not_done(self, capsys: pytest.CaptureFixture[str]) -> None:
        def broken() -> None:
            with track("reading", 3) as advance:
                advance(1)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            broken()
        assert capsys.readouterr().err == ""
        with track("reading", 3):
            pass
        assert capsys.readouterr().err == "reading: done\n"

    def test_silence(self, capsys: pytest.CaptureFixture[str]) -> None:
        with track("reading", 3, enabled=False) as advance:
            advance(3)
        assert capsys.readouterr().err == ""

    def test_a_bar_on_a_terminal(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        shown = show_progress("[dense]", 20, done=5)
        shown.update(10, "[shrink]")
        shown.say("a line [of its own]")
        shown.close()
        written = capsys.readouterr().err
        assert "10/20" in written
        assert "[shrink]" in written
        assert "a line [of its own]" in written


class TestInstallHint:
    @pytest.mark.parametrize(
        ("origin", "command"),
        [
            ("{}", "`pip install 'pcshrink[export]'`"),
            (None, "`pip install 'pcshrink[export]'`"),
            ({"url": "file:///home/me/my%20clone", "dir_info": {}}, "`pip install '.[export]'` in '/home/me/my clone'"),
            ({"url": "file:///src", "dir_info": {"editable": True}}, "`pip install -e '.[export]'` in /src"),
            (
                {"url": "https://example.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
                "`pip install 'pcshrink[export] @ git+https://example.org/p.git'`",
            ),
            (
                {"url": "file:///tmp/pcshrink-0.1.0-py3-none-any.whl", "archive_info": {}},
                "`pip install 'pcshrink[export] @ file:///tmp/pcshrink-0.1.0-py3-none-any.whl'`",
            ),
            ("not JSON", "`pip install '.[export]'` in the clone of pcshrink"),
        ],
    )
    def test_by_where_pcshrink_came_from(
        self, origin: object, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        info = tmp_path / "pcshrink-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pcshrink\nVersion: 0.1.0\n")
        if origin is not None:
            (info / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
        installed = metadata.PathDistribution(info)
        monkeypatch.setattr(install.metadata, "distribution", lambda name: installed)
        assert install_hint("onnxruntime.quantization") == command

    def test_not_installed_at_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", [])
        assert install_hint("timm") == "`pip install '.[train]'` in the clone of pcshrink"

    def test_a_library_of_no_extra(self) -> None:
        assert install_hint("sklearn.datasets") == "`pip install sklearn`"

    def test_the_extras_exist(self) -> None:
        project = (ROOT / "pyproject.toml").read_text()
        for extra, libraries in EXTRAS.items():
            listed = re.search(rf"^{extra} = \[(.*?)\]", project, re.MULTILINE | re.DOTALL)
            assert listed is not None
            assert set(libraries) - {"PIL"} == set(re.findall(r'"([a-z0-9]+)', listed[1]))  # PIL comes with torchvision
