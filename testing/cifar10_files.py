"""Small CIFAR-10 files in every form there is, for the tests that read them."""

import functools
import hashlib
import io
import json
import pickle
import struct
import tarfile

import numpy as np
import torch

from pcshrink.data import prepare_cifar10
from pcshrink.data.cifar10.read import BATCHES
from pcshrink.data.cifar10.stored import load_cifar10

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


def fake_npm(tmp_path, script):
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}\n")
    npm.chmod(0o755)


def assert_prepared(root):
    images, labels, test_images, test_labels = load_cifar10(root, expected=EXPECTED)
    flat = RECORDS.reshape(-1, 3073)
    assert images.dtype == torch.uint8
    assert torch.cat([images, test_images]).numpy().reshape(-1, 3072).tobytes() == flat[:, 1:].tobytes()
    assert torch.cat([labels, test_labels]).tolist() == flat[:, 0].tolist()
    assert images.shape == (5 * IMAGES, 3, 32, 32)
    assert len(test_labels) == IMAGES
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []
