"""Folders of images: layout, transforms, worker processes, resuming, broken files."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pcshrink.common.preprocessing import IMAGENET
from pcshrink.data import DataConfig, check_folder, check_images, load_dataset
from pcshrink.errors import ConfigError, DataError

pytest.importorskip("torchvision")
Image = pytest.importorskip("PIL.Image")

pytestmark = [
    pytest.mark.unit,
    # Newer Pythons warn about every fork; torch's loader forks by default on Linux.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

SMALL = {"batch_size": 4, "eval_batch_size": 3, "image_size": 16, "resize_size": 20, "workers": 0}


def picture(path, value=0, size=(30, 24)):
    noise = np.random.default_rng(value).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise).save(path)


@pytest.fixture
def root(tmp_path):
    for split, count in (("train", 6), ("val", 4)):
        for number, name in enumerate(("cat", "dog")):
            for index in range(count):
                picture(tmp_path / split / name / f"{index}.png", 100 * number + index)
    return tmp_path


def load(root, rank=0, world_size=1, **options):
    return load_dataset("folder", root, DataConfig(**{**SMALL, **options}), rank=rank, world_size=world_size)


def assert_same(left, right):
    left, right = list(left), list(right)
    assert len(left) == len(right)
    for (images, labels), (others, other_labels) in zip(left, right, strict=True):
        assert torch.equal(images, others)
        assert torch.equal(labels, other_labels)


class TestBatches:
    def test_what_it_is(self, root):
        data = load(root)
        assert (data.num_classes, data.classes, data.input_shape) == (2, ("cat", "dog"), (3, 16, 16))
        assert (len(data.train), data.train.num_samples, len(data.val), data.val.num_samples) == (3, 12, 3, 8)
        images, labels = next(data.train.batches(0))
        assert (images.shape, images.dtype, labels.dtype) == ((4, 3, 16, 16), torch.float32, torch.int64)
        assert torch.cat([labels for _, labels in data.train.batches(0)]).bincount().tolist() == [6, 6]
        assert torch.cat([labels for _, labels in data.val.batches()]).tolist() == [0] * 4 + [1] * 4

    def test_evaluation_is_resize_and_centre_crop(self, root):
        images, _ = next(load(root).val.batches())
        with Image.open(root / "val" / "cat" / "0.png") as original:
            resized = original.convert("RGB").resize((25, 20), Image.Resampling.BILINEAR)
        pixels = np.asarray(resized.crop((4, 2, 20, 18)), dtype=np.float32) / 255
        wanted = (pixels - np.array(IMAGENET.mean)) / np.array(IMAGENET.std)
        assert np.allclose(images[0].permute(1, 2, 0).numpy(), wanted, atol=1e-5)

    @pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with one core
    def test_deterministic_with_and_without_workers(self, root):
        plain = list(load(root, rand_augment=True).train.batches(3))
        torch.manual_seed(99)
        assert_same(plain, load(root, rand_augment=True, workers=2).train.batches(3))

    def test_larger_crops_are_more_like_the_whole_image(self, tmp_path):
        ramp = np.tile(np.arange(64, dtype=np.uint8) * 4, (64, 1))
        for part in ("train", "val"):
            for name in ("cat", "dog"):
                (tmp_path / part / name).mkdir(parents=True)
                for number in range(6):
                    Image.fromarray(np.stack([ramp] * 3, axis=2)).save(tmp_path / part / name / f"{number}.png")

        def spread(**options):
            images = torch.cat([batch for batch, _ in load(tmp_path, flip=False, **options).train.batches(0)])
            return float((images.amax(dim=(1, 2, 3)) - images.amin(dim=(1, 2, 3))).min())

        assert spread(least_crop=0.9) > spread()

    def test_epochs_and_seeds_differ(self, root):
        first, _ = next(load(root).train.batches(0))
        assert not torch.equal(first, next(load(root).train.batches(1))[0])
        assert not torch.equal(first, next(load(root, seed=1).train.batches(0))[0])

    @pytest.mark.parametrize("workers", [0, 1])
    def test_resuming_in_the_middle_of_an_epoch(self, root, workers):
        train = load(root, workers=workers).train
        assert_same(train.batches(1, 2), list(train.batches(1))[2:])
        assert list(train.batches(1, 3)) == []

    def test_processes_share_the_same_global_batches(self, root):
        ranks = [load(root, rank, 2).train.batches(1) for rank in range(2)]
        joined = [tuple(torch.cat(parts) for parts in zip(*shares, strict=True)) for shares in zip(*ranks, strict=True)]
        assert_same(joined, load(root).train.batches(1))
        parts = [load(root, rank, 3, batch_size=6).val for rank in range(3)]
        assert torch.cat([labels for part in parts for _, labels in part.batches()]).tolist() == [0] * 4 + [1] * 4
        assert sum(len(part) for part in parts) == 3

    @pytest.mark.parametrize("workers", [0, 1])
    def test_the_global_generator_is_left_alone(self, root, workers):
        state = torch.get_rng_state()
        data = load(root, workers=workers)
        list(data.train.batches(0))
        list(data.val.batches())
        assert torch.equal(state, torch.get_rng_state())

    def test_flip_can_be_off(self, root):
        flipped = torch.cat([images for images, _ in load(root).train.batches(0)])
        plain = torch.cat([images for images, _ in load(root, flip=False).train.batches(0)])
        same = [torch.equal(left, right) for left, right in zip(flipped, plain, strict=True)]
        mirrored = [torch.allclose(left, right.flip(2)) for left, right in zip(flipped, plain, strict=True)]
        assert any(same)
        assert any(mirrored)
        assert all(left or right for left, right in zip(same, mirrored, strict=True))

    def test_channels_last_and_own_statistics(self, root):
        data = load(root, channels_last=True, mean=(0.0,) * 3, std=(1.0,) * 3, interpolation="bicubic")
        images, _ = next(data.train.batches(0))
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert 0 <= images.min() < images.max() <= 1

    def test_grey_palette_and_nested_images(self, root):
        Image.new("L", (40, 40)).save(root / "val" / "cat" / "grey.png")
        (root / "val" / "dog" / "deep").mkdir()
        Image.new("P", (40, 40)).save(root / "val" / "dog" / "deep" / "palette.PNG")
        (root / "val" / "dog" / "notes.txt").write_text("not an image")
        (root / "val" / "dog" / "._0.png").write_text("left by another system")
        assert sum(len(images) for images, _ in load(root).val.batches()) == 10

    def test_impossible_position(self, root):
        with pytest.raises(ConfigError, match="no batch 4 in epoch 0"):
            load(root).train.batches(0, 4)


class TestLayouts:
    def test_without_val_a_share_is_held_out_by_seed(self, root):
        shutil.rmtree(root / "val")
        data = load(root)
        assert (data.train.num_samples, data.val.num_samples) == (10, 2)
        assert "2 of the 12 images in" in data.notes[0]
        assert [labels.tolist() for _, labels in data.val.batches()] == [[0, 1]]
        assert_same(data.val.batches(), load(root, seed=5).val.batches())
        assert load(root, holdout=0.5).val.num_samples == 6
        picture(root / "train" / "cat" / "new.png", 999)
        assert load(root).val.num_samples == 2

    def test_plain_class_folders(self, root):
        flat = root / "train"
        data = load(flat)
        assert (data.classes, data.train.num_samples, data.val.num_samples) == (("cat", "dog"), 10, 2)

    def test_one_class_is_none(self, root):
        shutil.rmtree(root / "train" / "cat")
        with pytest.raises(DataError, match=r"images of one class only \(dog\)"):
            load(root / "train")

    def test_too_few_to_hold_any_out(self, tmp_path):
        for name in ("cat", "dog"):
            picture(tmp_path / name / "0.png")
        with pytest.raises(DataError, match="one image a class: too few to hold any out"):
            load(tmp_path)

    def test_evaluation_alone(self, root):
        shutil.rmtree(root / "train")
        config = DataConfig(**SMALL)
        data = load_dataset("folder", root, config, evaluation_only=True)
        assert_same(
            data.val.batches(), load_dataset("folder", root / "val", config, evaluation_only=True).val.batches()
        )
        assert data.val.num_samples == 8
        with pytest.raises(DataError, match="opened for evaluation only"):
            data.train.batches(0)

    def test_evaluation_does_not_take_training_images_for_others(self, root):
        shutil.rmtree(root / "val")
        with pytest.raises(DataError, match=r"no val; to evaluate on all of them, name .*train"):
            load_dataset("folder", root, DataConfig(**SMALL), evaluation_only=True)

    def test_few_images_are_all_seen(self, root):
        data = load(root, batch_size=5)
        assert len(data.train) == 3
        first = torch.cat([images for images, _ in data.train.batches(0)])
        assert len(first) == 15
        assert len({image.numpy().tobytes() for image in first}) == 12
        assert_same(data.train.batches(0, 2), list(data.train.batches(0))[2:])

    def test_few_images_are_said(self, root):
        few, steps = load(root).notes
        assert few == "2 of 2 classes have fewer than 20 training images (cat: 6)"
        assert steps == "an epoch has 3 steps only; a smaller batch_size than 4 gives more"

    @pytest.mark.parametrize(
        "text", ["dog\ncat\n", '["dog", "cat"]', '{"dog": 0, "cat": 1}', '{"0": "dog", "1": ["n1", "cat"]}']
    )
    def test_another_order_of_classes(self, root, text):
        (root / "order").write_text(text)
        data = load(root, classes=root / "order")
        assert data.classes == ("dog", "cat")
        assert torch.cat([labels for _, labels in data.val.batches()]).tolist() == [1] * 4 + [0] * 4

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("cat\n", "dog is none of the 1 classes of"),
            ("cat\ncat\ndog", "the name 'cat' twice"),
            ("", "names no classes"),
            ("[1, 2]", "is no file of classes"),
            ("{", "is no file of classes"),
            ('{"cat": 0, "dog": 0}', "not a number of its own"),
            ('{"cat": 0, "dog": 2}', "numbered from 0 to 1 without a gap"),
        ],
    )
    def test_no_order_of_classes(self, root, text, message):
        (root / "order").write_text(text)
        with pytest.raises(DataError, match=message):
            load(root, classes=root / "order")

    def test_checking_a_folder(self, root):
        shutil.copy(root / "train" / "cat" / "0.png", root / "val" / "dog" / "copy.png")
        (root / "val" / "dog" / "broken.png").write_text("no image")
        found = check_folder(root, progress=False)
        assert (found.classes, found.train, found.val) == (("cat", "dog"), (6, 6), (4, 6))
        assert found.smallest == (30, 24)
        assert [Path(each.path).name for each in found.broken] == ["broken.png"]
        assert not found.sound
        assert found.notes[-1] == "a batch has 128 images by default; set data.batch_size to 12 or less"
        # The pictures of this test repeat themselves.
        assert str(root / "val" / "dog" / "copy.png") in found.shared


class TestErrors:
    def test_no_such_folder(self, tmp_path):
        with pytest.raises(DataError, match=r"the image folder .*nowhere does not exist"):
            load(tmp_path / "nowhere")

    @pytest.mark.parametrize("split", ["train", "val"])
    def test_missing_split(self, root, split):
        (root / split).rename(root / "other")
        with pytest.raises(DataError, match=rf"the folder {root / split} is missing \(found: .*other"):
            load(root)

    @pytest.mark.parametrize("split", ["train", "val"])
    def test_empty_class(self, root, split):
        (root / split / "bird").mkdir()
        match = rf"there are classes without images in {root / split} \(empty class folders: bird\)"
        with pytest.raises(DataError, match=match):
            load(root)

    def test_no_images_at_all(self, tmp_path):
        for split in ("train", "val"):
            (tmp_path / split / "cat").mkdir(parents=True)
        with pytest.raises(DataError, match=f"there are no images at all in {tmp_path / 'train'}"):
            load(tmp_path)

    def test_no_class_folders(self, root):
        (root / "val").rename(root / "old")
        (root / "val").mkdir()
        with pytest.raises(DataError, match=f"{root / 'val'} has no class folders"):
            load(root)
        picture(root / "val" / "ILSVRC2012_val_00000001.png")
        with pytest.raises(DataError, match=f"{root / 'val'} has images but no class folders"):
            load(root)

    def test_classes_differ(self, root):
        for number in range(7):
            picture(root / "train" / f"extra{number}" / "0.png")
        (root / "val" / "cat").rename(root / "val" / "Cat")
        match = "only in train: cat, extra0, extra1, extra2, extra3 and 3 more; only in val: Cat"
        with pytest.raises(DataError, match=match):
            load(root)

    @pytest.mark.parametrize(
        ("module", "message"), [("PIL", "need Pillow"), ("torchvision.transforms", "need torchvision")]
    )
    def test_missing_libraries(self, root, monkeypatch, module, message):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(DataError, match=f"image files {message}.*pip install .*train"):
            list(load(root).val.batches())

    def test_batch_larger_than_the_set(self, root):
        with pytest.raises(DataError, match="batch_size 64 is larger than the 12 training images"):
            load(root, batch_size=64)

    @pytest.mark.parametrize("workers", [0, 1])
    @pytest.mark.parametrize("damage", ["empty", "truncated", "text"])
    def test_broken_image_is_named_when_met(self, root, workers, damage):
        path = root / "val" / "dog" / "1.png"
        content = path.read_bytes()
        path.write_bytes({"empty": b"", "truncated": content[: len(content) // 2], "text": b"hello"}[damage])
        with pytest.raises(DataError, match=f"^cannot decode the image {path}: .*; replace or remove it"):
            list(load(root, workers=workers).val.batches())

    def test_check_images_lists_all_broken_ones(self, root, capsys):
        assert check_images(root, progress=False) == []
        broken = [root / "train" / "cat" / "3.png", root / "val" / "dog" / "1.png"]
        for path in broken:
            path.write_bytes(b"hello")
        found = check_images(root)
        assert [image.path for image in found] == [str(path) for path in broken]
        assert "cannot identify" in str(found[0])
        assert capsys.readouterr().err == "checking 20 images: done\n"


def test_a_link_to_its_own_folder_is_followed_once(root):
    before = load(root).train.num_samples
    name = next(path for path in sorted((root / "train").iterdir()) if path.is_dir())
    (name / "again").symlink_to(name)
    (name / "itself.jpg").symlink_to(name / "itself.jpg")
    assert load(root).train.num_samples == before + 1  # the link that leads nowhere is an image that cannot be read
    assert [broken.path for broken in check_images(root, progress=False)] == [str(name / "itself.jpg")]


def test_only_photographs_are_opened(root):
    name = next(path for path in sorted((root / "train").iterdir()) if path.is_dir())
    (name / "page.jpg").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n")
    assert [broken.path for broken in check_images(root, progress=False)] == [str(name / "page.jpg")]
