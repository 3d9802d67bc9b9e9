"""Everything that may be wrong with a shard is one line that names it."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pcshrink.data import write_shards
from pcshrink.errors import DataError
from testing.shards import image_folder, load, picture, sample, samples, shard

pytest.importorskip("torchvision")
pytest.importorskip("PIL.Image")

pytestmark = [
    pytest.mark.unit,
    pytest.mark.usefixtures("own_cache"),
    # Newer Pythons warn about every fork; torch's loader forks by default on Linux.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def link(name: str, target: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, target
        with tarfile.open(path, "a") as archive:
            archive.addfile(info)

    return write


def cut_to(share: float) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def one(*members: tuple[str, bytes]) -> Callable[[Path], object]:
    return lambda path: shard(path, [*samples(range(4)), *members])


def at_a_member(path: Path) -> None:
    """Nothing but the end is missing."""
    with tarfile.open(path) as archive:
        end = archive.getmembers()[-2].offset
    path.write_bytes(path.read_bytes()[:end])


def another_byte(path: Path) -> None:
    with tarfile.open(path) as archive:
        place = archive.getmembers()[3].offset
    content = bytearray(path.read_bytes())
    content[place + 10] ^= 1
    path.write_bytes(content)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut off in an image": (cut_to(0.45), "cut off"),
    "cut off at a member": (at_a_member, "is damaged or cut off at byte"),
    "a damaged header": (another_byte, "is damaged or cut off at byte"),
    "empty": (lambda p: p.write_bytes(b""), "cannot be read or is cut off: empty file"),
    "text": (lambda p: p.write_text("hello" * 500), "cannot be read or is cut off"),
    "compressed": (lambda p: p.write_bytes(gzip.compress(p.read_bytes())), r"is compressed \(gzip\)"),
    "a folder": (lambda p: (p.unlink(), p.mkdir()), "cannot be read"),
    "no images": (lambda p: shard(p, [("readme.txt", b"hi")]), "there are no images in"),
    "no label": (one(("9.png", picture())), r"has no label for 9.png: expected 9.cls"),
    "json without a label": (one(("9.png", picture()), ("9.json", b"{}")), "has no label for 9.png"),
    "no image": (one(("9.cls", b"0")), "has a label but no image for the key '9'"),
    "a word for a label": (one(("9.png", picture()), ("9.cls", b"cat")), "the label b'cat' in 9.cls; a label is"),
    "a list for a label": (one(("9.png", picture()), ("9.json", b'{"label": [1]}')), r"has the label \[1\] in 9.json"),
    "no json": (one(("9.png", picture()), ("9.json", b"{")), "has the label b'{' in 9.json"),
    "a long label": (one(("9.png", picture()), ("9.cls", b"1" * 2000)), "has the label 9.cls of 2000 bytes"),
    "a negative label": (one(*sample(9, -1)), r"the label -1 of .*000009.png is out of range: there are 2 classes"),
    "labels from 1": (lambda p: shard(p, sample(0, 1) + sample(1, 2)), "classes without training images .*: 0; labels"),
    "a huge label": (one(*sample(9, 10**30)), "is out of range: there are 1000000 classes"),
    "a key twice": (one(*sample(3)), "two images with the key '000003': 000003.png and 000003.png"),
    "two kinds of image": (one(("000003.jpg", picture())), "two images with the key '000003'"),
    "a label twice": (one(("000003.cls", b"1")), "has 000003.cls twice"),
    "a link": (link("9.png", "/etc/passwd"), "has the member 9.png, which is a link"),
    "a way out": (one(("../9.png", picture())), "unsafe name '../9.png'"),
    "an absolute name": (one(("/etc/9.png", picture())), "unsafe name '/etc/9.png'"),
    "control characters": (one(("a\x1b[2J\n.png", picture())), "unsafe name"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_one_line_that_names_the_shard(what: str, tmp_path: Path) -> None:
    damage, message = BAD[what]
    path = shard(tmp_path / "train-000000.tar", samples(range(4)))
    damage(path)
    for _ in range(2):  # what is wrong is not remembered as right
        with pytest.raises(DataError, match=message) as caught:
            load(tmp_path)
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_label_beyond_the_named_classes(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    write_shards(image_folder(tmp_path / "images"), shards, progress=False)
    shard(shards / "val-9.tar", sample(9, 2))
    with pytest.raises(DataError, match=r"the label 2 of .* there are 2 classes, 0 to 1 \(.*classes.txt\)"):
        load(shards)


def test_a_class_that_is_only_in_val(tmp_path: Path) -> None:
    shard(tmp_path / "train-0.tar", samples(range(4)))
    shard(tmp_path / "val-0.tar", sample(0, 2))
    with pytest.raises(DataError, match=r"the label 2 of .*val-0.tar/000000.png is out of range"):
        load(tmp_path)


def test_no_shards(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no shards; expected train-000000.tar .*pcshrink data shards"):
        load(tmp_path)
    with pytest.raises(DataError, match=r"the shard .*nowhere does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(DataError, match="does not exist"):
        load(tmp_path / "train-*.tar")
    shard(tmp_path / "val-0.tar", samples(range(4)))
    with pytest.raises(DataError, match="but none to train on"):
        load(tmp_path)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_named_when_met(tmp_path: Path, workers: int) -> None:
    shard(tmp_path / "train-0.tar", samples(range(4)))
    path = shard(tmp_path / "val-0.tar", [*sample(0), ("1.png", picture()[:300]), ("1.cls", b"1")])
    with pytest.raises(DataError, match=f"^cannot decode the image {path}/1.png: .*; replace or remove it"):
        list(load(tmp_path, workers=workers).val.batches())


def test_a_shard_that_shrinks_while_it_is_used(tmp_path: Path) -> None:
    shard(tmp_path / "train-0.tar", samples(range(4)))
    path = shard(tmp_path / "val-0.tar", samples(range(4)))
    data = load(tmp_path)
    cut_to(0.3)(path)
    with pytest.raises(DataError, match="ends in the middle of it; the file was changed"):
        list(data.val.batches())
