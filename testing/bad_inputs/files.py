"""Files and folders that are not what they should be."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image

import pcshrink as pcs
from pcshrink.artifact import load_weights
from pcshrink.data import DataConfig, check_folder, load_dataset, predict, read_images
from pcshrink.export.onnx import read_preprocessing
from pcshrink.train.again import evaluate_saved
from pcshrink.train.checkpoint import load_state
from testing.bad_inputs.case import Case, cases
from testing.bad_inputs.place import SEEN, Place

SMALL = DataConfig(batch_size=4, workers=0, image_size=8)
Damage = Callable[[Path], object]

DAMAGES: dict[str, Damage] = {
    "no record": lambda f: (f / "pcshrink.json").unlink(),
    "no weights": lambda f: (f / "model.safetensors").unlink(),
    "an empty record": lambda f: (f / "pcshrink.json").write_bytes(b""),
    "a record of text": lambda f: (f / "pcshrink.json").write_text("hello"),
    "a record of a list": lambda f: (f / "pcshrink.json").write_text("[]"),
    "a record of binary": lambda f: (f / "pcshrink.json").write_bytes(bytes(range(256))),
    "a record cut off": lambda f: _cut(f / "pcshrink.json"),
    "a record with another byte": lambda f: _flip(f / "pcshrink.json"),
    "a newer record": lambda f: _replace(f / "pcshrink.json", b'"schema": 2', b'"schema": 9'),
    "empty weights": lambda f: (f / "model.safetensors").write_bytes(b""),
    "weights cut off": lambda f: _cut(f / "model.safetensors"),
    "weights with another byte": lambda f: _flip(f / "model.safetensors"),
    "a pickle for weights": lambda f: torch.save({}, f / "model.safetensors"),
    "a folder for weights": lambda f: ((f / "model.safetensors").unlink(), (f / "model.safetensors").mkdir()),
}

LAYOUTS: dict[str, Callable[[Path], object]] = {
    "nothing in it": lambda r: (shutil.rmtree(r), r.mkdir()),
    "no train": lambda r: shutil.rmtree(r / "train"),
    "no train, another name": lambda r: (r / "train").rename(r / "training"),
    "val under another name": lambda r: (r / "val").rename(r / "valid"),
    "an empty class": lambda r: (r / "train" / "eel").mkdir(),
    "a class that is only in val": lambda r: shutil.copytree(r / "val" / "cat", r / "val" / "eel"),
    "a class that is only in train": lambda r: shutil.rmtree(r / "val" / "cat"),
    "images without classes": lambda r: _flatten(r / "train"),
    "a file for a folder": lambda r: (shutil.rmtree(r / "train"), (r / "train").write_text("x")),
    "one class": lambda r: (shutil.rmtree(r / "val"), shutil.rmtree(r / "train" / "cat")),
    "other files only": lambda r: [p.rename(p.with_suffix(".txt")) for p in (r / "train").rglob("*.png")],
    "fewer images than a batch": lambda r: [p.unlink() for p in (r / "train").rglob("[123].png")],
}

PICTURES: dict[str, Damage] = {
    "an empty image": lambda p: p.write_bytes(b""),
    "a text for an image": lambda p: p.write_text("no image"),
    "an image cut off": lambda p: _cut(p),
    "a folder for an image": lambda p: (p.unlink(), p.mkdir()),
    "a link to nowhere": lambda p: (p.unlink(), p.symlink_to("/nowhere/at/all.png")),
    "an image of one pixel of nothing": lambda p: p.write_bytes(b"\x89PNG\r\n\x1a\n"),
}


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def _replace(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new))


def _flatten(folder: Path) -> None:
    for number, path in enumerate(sorted(folder.rglob("*.png"))):
        path.rename(folder / f"{number}.png")
    for inner in folder.iterdir():
        if inner.is_dir():
            inner.rmdir()


def _damaged(damage: Damage, use: Callable[[Path, Place], object]) -> Callable[[Place], object]:
    def act(place: Place) -> None:
        folder = place.copy()
        damage(folder)
        use(folder, place)

    return act


def _laid_out(damage: Damage) -> Callable[[Place], object]:
    def act(place: Place) -> None:
        root = place.draw(place.fresh() / "images")
        damage(root)
        data = load_dataset("folder", root, SMALL)
        list(data.train.batches(0))

    return act


def _pictured(damage: Damage, use: Callable[[Path, Path], object]) -> Callable[[Place], object]:
    def act(place: Place) -> None:
        root = place.draw(place.fresh() / "images")
        picture = root / "train" / "cat" / "0.png"
        damage(picture)
        use(root, picture)

    return act


def _batches(root: Path) -> None:
    list(load_dataset("folder", root, SMALL).train.batches(0))


def _weights(data: bytes) -> Callable[[Place], object]:
    def act(place: Place) -> None:
        path = place.fresh() / "weights.pt"
        path.write_bytes(data)
        load_weights(path)

    return act


def _evil(place: Place) -> None:
    path = place.fresh() / "weights.pt"
    torch.save(torch.nn.Linear(2, 2), path)
    load_weights(path)


def _twin(place: Place) -> None:
    root = place.draw(place.fresh() / "images")
    shutil.copy(root / "train" / "cat" / "0.png", root / "val" / "cat" / "0.png")
    if check_folder(root, progress=False).sound:
        return
    message = "found"
    raise pcs.ShrinkError(message)


def _grey_onnx(place: Place) -> None:
    path = place.fresh() / "model.onnx"
    path.write_text("no model")
    read_preprocessing(path)


def _full(place: Place) -> None:
    """A disk that is full: the kernel's own."""
    (place.fresh() / "x").write_text("")
    pcs.save("/dev/full/model", place.net(), None)


def _huge(place: Place) -> None:
    path = place.fresh() / "big.png"
    Image.new("L", (20000, 20000)).save(path)
    read_images([path], SEEN)


def files() -> list[Case]:
    """Artifacts, weights, images."""
    table: list[tuple[str, Callable[[Place], object]]] = []
    for name, damage in DAMAGES.items():
        table.append((f"load: {name}", _damaged(damage, lambda f, p: pcs.load(f))))
        table.append((f"eval: {name}", _damaged(damage, lambda f, p: evaluate_saved(f, "digits"))))
        table.append((f"predict: {name}", _damaged(damage, lambda f, p: predict(f, [p.picture]))))
    table += [(f"folder: {name}", _laid_out(damage)) for name, damage in LAYOUTS.items()]
    for name, damage in PICTURES.items():
        if name != "a folder for an image":  # folders may lie within those of the classes
            table.append((f"batch: {name}", _pictured(damage, lambda root, _: _batches(root))))
        table.append((f"read: {name}", _pictured(damage, lambda _, path: read_images([path], SEEN))))
    table += [
        ("weights: nothing", _weights(b"")),
        ("weights: text", _weights(b"hello there")),
        ("weights: half a zip", _weights(b"PK\x03\x04rest")),
        ("weights: a pickle of code", _weights(b"cos\nsystem\n(S'true'\ntR.")),
        ("weights: a whole module", _evil),
        ("weights: missing", lambda p: load_weights(p.fresh() / "missing.pt")),
        ("weights: a folder", lambda p: load_weights(p.fresh())),
        ("checkpoint: missing", lambda p: load_state(p.fresh() / "missing.safetensors")),
        ("checkpoint: text", lambda p: load_state(p.text)),
        ("an image in both parts", _twin),
        ("a file that is no ONNX", _grey_onnx),
        ("a full disk", _full),
        ("a folder that may not be written", lambda p: pcs.save("/proc/1/nothing", p.net(), None)),
        ("a file where a folder should be", lambda p: pcs.save(p.text, p.net(), None)),
        ("an image of 400 million pixels", _huge),
    ]
    return cases("file", table)
