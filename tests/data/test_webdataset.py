"""Shards: the same images in the same order as folders, resuming, labels, and writing them."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from pcshrink.data import DataConfig, check_folder, load_dataset, write_shards
from pcshrink.data.shard_scan import expand_braces, find_shards, looks_like_shards
from pcshrink.data.shard_writing import parse_size
from pcshrink.data.tar_index import index_shard
from pcshrink.errors import ConfigError, DataError
from pcshrink.train.run import train
from testing.shards import SMALL, image_folder, load, picture, sample, samples, shard
from testing.training import model_bytes, tiny, train_with_stops

pytest.importorskip("torchvision")
pytest.importorskip("PIL.Image")

pytestmark = [
    pytest.mark.unit,
    pytest.mark.usefixtures("own_cache"),
    # Newer Pythons warn about every fork; torch's loader forks by default on Linux.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return image_folder(tmp_path / "images")


@pytest.fixture
def shards(folder: Path, tmp_path: Path) -> Path:
    write_shards(folder, tmp_path / "shards", size=10_000, progress=False)
    return tmp_path / "shards"


def assert_same(left: Iterable[Any], right: Iterable[Any]) -> None:
    for (images, labels), (others, other_labels) in zip(left, right, strict=True):
        assert torch.equal(images, others)
        assert torch.equal(labels, other_labels)


class TestLikeFolders:
    def test_the_same_batches(self, folder: Path, shards: Path) -> None:
        assert len(find_shards(shards)["train"]) > 2
        ours, theirs = load(shards, rand_augment=True), load(folder, name="folder", rand_augment=True)
        assert (ours.name, ours.classes, ours.notes) == ("webdataset", theirs.classes, theirs.notes)
        for epoch in (0, 1):
            assert_same(ours.train.batches(epoch), theirs.train.batches(epoch))
        assert_same(ours.val.batches(), theirs.val.batches())

    @pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with one core
    @pytest.mark.parametrize("workers", [0, 2])
    def test_resuming_in_the_middle_of_an_epoch(self, shards: Path, workers: int) -> None:
        data = load(shards, workers=workers)
        assert_same(data.train.batches(1, 2), list(load(shards).train.batches(1))[2:])

    def test_processes_share_the_same_global_batches(self, shards: Path) -> None:
        ranks = [load(shards, rank, 2).train.batches(1) for rank in range(2)]
        joined = [tuple(torch.cat(parts) for parts in zip(*shares, strict=True)) for shares in zip(*ranks, strict=True)]
        assert_same(joined, load(shards).train.batches(1))

    def test_the_same_images_are_held_out(self, folder: Path, tmp_path: Path) -> None:
        shutil.rmtree(folder / "val")
        write_shards(folder, tmp_path / "shards", progress=False)
        ours, theirs = load(tmp_path / "shards"), load(folder, name="folder")
        assert "there is no val part: 2 of the 12 images" in ours.notes[0]
        assert_same(ours.val.batches(), theirs.val.batches())
        assert_same(ours.train.batches(0), theirs.train.batches(0))

    def test_outputs_in_another_order(self, folder: Path, shards: Path) -> None:
        order = ("dog", "eel", "cat")
        assert_same(load(shards, classes=order).val.batches(), load(folder, name="folder", classes=order).val.batches())
        with pytest.raises(DataError, match=r"the class 'cat' of .*classes.txt is none of the 1 classes"):
            load(shards, classes=("dog",))

    def test_checking(self, folder: Path, shards: Path) -> None:
        ours, theirs = check_folder(shards, progress=False), check_folder(folder, progress=False)
        assert ours == theirs
        assert ours.sound
        shard(shards / "val-9.tar", [("x.jpg", b"no image"), ("x.cls", b"0"), *sample(7), ("y.png", picture(0))][:4])
        found = check_folder(shards, progress=False)
        assert [broken.path for broken in found.broken] == [str(shards / "val-9.tar" / "x.jpg")]

    @pytest.mark.train
    @pytest.mark.slow
    def test_a_training_stopped_in_the_middle_of_an_epoch(self, tmp_path: Path) -> None:
        shard(tmp_path / "s" / "train-0.tar", samples(range(40)))
        shard(tmp_path / "s" / "train-1.tar", samples(range(40, 64)))
        shard(tmp_path / "s" / "val-0.tar", samples(range(100, 116)))
        data = {"name": "webdataset", "root": str(tmp_path / "s"), "batch_size": 8, "image_size": 16, "workers": 1}
        recipe = tiny(
            data=data | {"mean": [0.5], "std": [0.25]}, epochs={"dense": 1, "shrink": 1, "settle": 1}, distill=None
        )
        train(recipe, tmp_path / "whole", quiet=True)
        train_with_stops(recipe, tmp_path / "parts", 3, 11)
        assert model_bytes(tmp_path / "parts") == model_bytes(tmp_path / "whole")


class TestOtherPeoplesShards:
    def test_names_tell_the_parts(self, tmp_path: Path) -> None:
        for name in ("imagenet1k-train-0000.tar", "imagenet1k-validation-00.tar", "test-0.tar"):
            shard(tmp_path / "flat" / name, samples(range(4)))
        found = find_shards(tmp_path / "flat")
        assert [len(found[part]) for part in ("train", "val", "")] == [1, 1, 1]
        assert "1 shards in" in load(tmp_path / "flat").notes[0]
        for part in ("train", "val"):
            shard(tmp_path / "deep" / part / "0.tar", samples(range(4)))
        assert load(tmp_path / "deep").val.num_samples == 4

    def test_patterns(self, tmp_path: Path) -> None:
        for number in range(3):
            shard(tmp_path / f"train-{number:06d}.tar", samples(range(4 * number, 4 * number + 4)))
        shard(tmp_path / "val-000000.tar", samples(range(4)))
        assert load(tmp_path / "{train,val}-*.tar").train.num_samples == 12
        two = load(tmp_path / "train-{000000..000001}.tar")
        assert (two.train.num_samples, two.val.num_samples) == (6, 2)
        assert expand_braces("a{1,b}c{09..10}") == ["a1c09", "a1c10", "abc09", "abc10"]
        with pytest.raises(DataError, match=r"the shard .*train-000003.tar does not exist"):
            load(tmp_path / "train-{000000..000003}.tar")

    def test_evaluation_alone(self, tmp_path: Path) -> None:
        shard(tmp_path / "train-0.tar", samples(range(6)))
        config = DataConfig(**SMALL)
        with pytest.raises(DataError, match=r"no val; to evaluate on them, name them: .*train-\*\.tar"):
            load_dataset("webdataset", tmp_path, config, evaluation_only=True)
        named = load_dataset("webdataset", tmp_path / "train-*.tar", config, evaluation_only=True)
        assert named.val.num_samples == 6
        shard(tmp_path / "val-0.tar", samples(range(4)))
        assert load_dataset("webdataset", tmp_path, config, evaluation_only=True).val.num_samples == 4

    def test_labels_in_json_and_other_fields(self, tmp_path: Path) -> None:
        members = []
        for number in range(8):
            members += [
                (f"./a.b/{number}.JPG", picture(number, "JPEG")), (f"./a.b/{number}.seg.png", b"another field"),
                (f"./a.b/{number}.json", json.dumps({"label": number % 2, "text": "x"}).encode()),
                (f"./a.b/._{number}.jpg", b"left by another system"),
            ]  # fmt: skip
        data = load(shard(tmp_path / "some.tar", members), holdout=0.5)
        assert (data.classes, data.train.num_samples, data.val.num_samples) == (("0", "1"), 4, 4)
        assert torch.cat([labels for _, labels in data.val.batches()]).tolist() == [0, 0, 1, 1]

    def test_folders_are_no_shards(self, folder: Path, shards: Path) -> None:
        assert looks_like_shards(shards)
        shutil.copy(shards / "val-000000.tar", folder / "ILSVRC2012_img_val.tar")
        assert not looks_like_shards(folder)


class TestMemory:
    def test_a_shard_is_read_once(self, shards: Path, own_cache: Path) -> None:
        path = shards / "train-000000.tar"
        first, content, state = index_shard(path), path.read_bytes(), path.stat()
        path.write_bytes(bytes(len(content)))  # nobody who read it would find an image
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert index_shard(path) == first
        path.write_bytes(content)
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        for kept in own_cache.rglob("*.json"):
            kept.write_text('[["half", 1')
        assert index_shard(path) == first
        shard(path, samples(range(2)))
        assert len(index_shard(path)) == 2

    def test_no_place_to_remember(self, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
        assert load(shards).train.num_samples == 12


class TestWriting:
    def test_bytes_are_kept_and_names_are_free(self, folder: Path, tmp_path: Path) -> None:
        odd = {"a.b.png": 1, "a_b.png": 2, "0.jpg": 3}
        for name, number in odd.items():
            (folder / "train" / "cat" / name).write_bytes(picture(number, "JPEG" if name.endswith("jpg") else "PNG"))
        written = write_shards(folder, tmp_path / "new" / "shards", progress=False)
        assert [path.name for path in written] == ["train-000000.tar", "val-000000.tar"]
        with tarfile.open(written[0]) as archive:
            packed = [archive.extractfile(member).read() for member in archive if not member.name.endswith(".cls")]  # type: ignore[union-attr]
        assert sorted(packed) == sorted(path.read_bytes() for path in (folder / "train").rglob("*.*"))
        assert load(tmp_path / "new" / "shards").train.num_samples == 15
        again = write_shards(folder, tmp_path / "again", progress=False)
        assert [a.read_bytes() for a in again] == [b.read_bytes() for b in written]

    def test_nothing_is_written_over(self, folder: Path, shards: Path) -> None:
        before = sorted(shards.iterdir())
        with pytest.raises(DataError, match="exists already; shards are not written over anything"):
            write_shards(folder, shards)
        assert sorted(shards.iterdir()) == before

    def test_all_or_nothing(self, folder: Path, tmp_path: Path) -> None:
        (folder / "val" / "dog" / "x.png").symlink_to("nowhere.png")
        before = sorted(tmp_path.iterdir())
        with pytest.raises(DataError, match=r"cannot read the image .*x.png"):
            write_shards(folder, tmp_path / "new", progress=False)
        assert sorted(tmp_path.iterdir()) == before

    def test_sizes(self, folder: Path, tmp_path: Path) -> None:
        assert [parse_size(text) for text in ("1GB", "1.5 kb", "700")] == [10**9, 1500, 700]
        for text in ("", "big", "0", "-1GB", "1XB"):
            with pytest.raises(ConfigError, match="a size is a number of bytes"):
                parse_size(text)
        with pytest.raises(ConfigError, match="size must be"):
            write_shards(folder, tmp_path / "new", size=0)
        assert len(write_shards(folder, tmp_path / "new", size=1, progress=False)) == 20
