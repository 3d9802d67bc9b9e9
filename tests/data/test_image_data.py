"""Batches from memory: augmentation against loops, order, resuming, sharing between processes, options."""

import pytest
import torch
import torch.nn.functional as F

from pcshrink.data import DATASETS, DataConfig, load_dataset
from pcshrink.data.array_set import ArraySet
from pcshrink.data.augment import Normalizer, crop_and_flip, cutout_
from pcshrink.data.source import BatchOrder, derive_seed, split_evenly
from pcshrink.errors import ConfigError, DataError

pytestmark = pytest.mark.unit

TINY = ArraySet(name="tiny", classes=tuple(map(str, range(50))), mean=(0.5,) * 3, std=(0.25,) * 3, padding=2, flip=True)


def tiny(rank=0, world_size=1, **options):
    generator = torch.Generator().manual_seed(5)
    images = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8, generator=generator)
    labels = torch.arange(50)
    config = DataConfig(**{"batch_size": 12, "eval_batch_size": 8, **options})
    return TINY.open((images, labels, images[:21], labels[:21]), config, rank, world_size)


def all_batches(source, *args):
    return [(images.clone(), labels.clone()) for images, labels in source.batches(*args)]


def assert_same(left, right):
    assert len(left) == len(right)
    for (images, labels), (others, other_labels) in zip(left, right, strict=True):
        assert torch.equal(images, others)
        assert torch.equal(labels, other_labels)


class TestAugment:
    @pytest.mark.parametrize("padding", [0, 1, 4])
    def test_crop_and_flip_equal_a_loop(self, padding):
        images = torch.randint(0, 256, (9, 3, 6, 10), dtype=torch.uint8)
        offsets = torch.randint(0, 2 * padding + 1, (9, 2))
        flips = torch.arange(9) % 2 == 0
        got = crop_and_flip(images, offsets, flips, padding)
        for index, image in enumerate(images):
            padded = torch.zeros(3, 6 + 2 * padding, 10 + 2 * padding, dtype=torch.uint8)
            padded[:, padding : padding + 6, padding : padding + 10] = image
            row, column = offsets[index].tolist()
            wanted = padded[:, row : row + 6, column : column + 10]
            assert torch.equal(got[index], wanted.flip(2) if flips[index] else wanted)

    @pytest.mark.parametrize("padding", [0, 1, 4])
    def test_reflected_crops_equal_crops_of_a_padded_image(self, padding):
        images = torch.randint(0, 256, (9, 3, 6, 10), dtype=torch.uint8)
        offsets = torch.randint(0, 2 * padding + 1, (9, 2))
        got = crop_and_flip(images, offsets, torch.zeros(9, dtype=torch.bool), padding, reflect=True)
        padded = F.pad(images.float(), (padding,) * 4, mode="reflect")
        for index, (row, column) in enumerate(offsets.tolist()):
            assert torch.equal(got[index].float(), padded[index, :, row : row + 6, column : column + 10])

    @pytest.mark.parametrize("size", [1, 4, 5, 40])
    def test_cutout_equals_a_loop(self, size):
        images = torch.rand(20, 2, 6, 9) + 1
        centres = torch.stack([torch.randint(0, 6, (20,)), torch.randint(0, 9, (20,))], 1)
        wanted = images.clone()
        for index, (row, column) in enumerate(centres.tolist()):
            for y in range(row - size // 2, row - size // 2 + size):
                for x in range(column - size // 2, column - size // 2 + size):
                    if 0 <= y < 6 and 0 <= x < 9:
                        wanted[index, :, y, x] = 0
        cutout_(images, centres, size)
        assert torch.equal(images, wanted)

    def test_normalizer(self):
        images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
        before = images.clone()
        mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
        wanted = (images.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
        assert torch.allclose(Normalizer(mean, std)(images).double(), wanted, atol=1e-6)
        assert torch.equal(images, before)


class TestTrain:
    def test_an_epoch_has_every_sample_at_most_once(self):
        train = tiny().train
        labels = torch.cat([labels for _, labels in train.batches(0)])
        assert len(train) == 4
        assert train.num_samples == 50
        assert len(labels) == 48 == len(labels.unique())

    def test_types(self):
        images, labels = next(tiny().train.batches(0))
        assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
        assert images.shape == (12, 3, 8, 8)
        assert images.is_contiguous()

    def test_same_seed_and_epoch_same_batches_whatever_the_global_generator_does(self):
        first = all_batches(tiny(cutout=3).train, 2)
        torch.manual_seed(1234)
        assert_same(first, all_batches(tiny(cutout=3).train, 2))

    def test_the_global_generator_is_left_alone(self):
        state = torch.get_rng_state()
        all_batches(tiny().train, 0)
        assert torch.equal(state, torch.get_rng_state())

    @pytest.mark.parametrize(("options", "epoch"), [({"seed": 1}, 2), ({}, 3)])
    def test_other_seed_or_epoch_other_batches(self, options, epoch):
        first, other = all_batches(tiny().train, 2), all_batches(tiny(**options).train, epoch)
        assert not torch.equal(first[0][1], other[0][1])

    @pytest.mark.parametrize("start", [0, 1, 3, 4])
    def test_resuming_in_the_middle_of_an_epoch(self, start):
        train = tiny(cutout=3).train
        assert_same(all_batches(train, 1, start), all_batches(train, 1)[start:])

    @pytest.mark.parametrize("world_size", [2, 3])
    def test_processes_share_the_same_global_batches(self, world_size):
        single = all_batches(tiny(cutout=3).train, 1, 1)
        ranks = [all_batches(tiny(rank, world_size, cutout=3).train, 1, 1) for rank in range(world_size)]
        joined = [tuple(torch.cat(parts) for parts in zip(*shares, strict=True)) for shares in zip(*ranks, strict=True)]
        assert_same(joined, single)

    def test_augmentation_differs_between_epochs_and_can_be_off(self):
        plain = tiny(padding=0, flip=False)
        evaluated = torch.cat([images for images, _ in plain.val.batches()])
        for images, labels in plain.train.batches(0):
            seen = labels < 21
            assert torch.equal(images[seen], evaluated[labels[seen]])
        images, labels = next(tiny().train.batches(0))
        assert not torch.equal(images[labels < 21], evaluated[labels[labels < 21]])

    def test_crops_and_flips_are_evenly_spread(self):
        train = tiny(padding=1).train
        draws = [train._draw(epoch) for epoch in range(60)]
        corners = torch.cat([offsets for offsets, _, _ in draws]).unique(dim=0, return_counts=True)[1]
        assert len(corners) == 9
        assert corners.min() > 0.7 * corners.float().mean()
        assert 0.45 < torch.cat([flips for _, flips, _ in draws]).float().mean() < 0.55

    def test_channels_last_changes_the_layout_only(self):
        plain, other = all_batches(tiny().train, 0), all_batches(tiny(channels_last=True).train, 0)
        assert_same(plain, other)
        for images, _ in (
            *tiny(channels_last=True).train.batches(0),
            *tiny(channels_last=True).val.batches(),
        ):
            assert images.is_contiguous(memory_format=torch.channels_last)

    @pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1), (0, 5)])
    def test_impossible_position(self, epoch, start):
        with pytest.raises(ConfigError, match=f"no batch {start} in epoch {epoch}.*have 4 batches"):
            tiny().train.batches(epoch, start)


class TestEval:
    @pytest.mark.parametrize("world_size", [1, 2, 4])
    def test_every_image_once_in_order_over_all_processes(self, world_size):
        vals = [tiny(rank, world_size).val for rank in range(world_size)]
        labels = [labels for val in vals for _, labels in val.batches()]
        assert torch.cat(labels).tolist() == list(range(21))
        assert all(len(val) == len(list(val.batches())) and val.num_samples == 21 for val in vals)

    def test_more_processes_than_images(self):
        parts = [split_evenly(2, rank, 5) for rank in range(5)]
        assert sorted(index for part in parts for index in part) == [0, 1]


class TestOrder:
    def test_batch_must_be_shareable(self):
        with pytest.raises(ConfigError, match="batch_size 9 cannot be shared evenly by 2 processes"):
            BatchOrder(num_samples=90, batch_size=9, seed=0, world_size=2)

    @pytest.mark.parametrize("rank", [-1, 2])
    def test_impossible_rank(self, rank):
        with pytest.raises(ConfigError, match=f"got rank {rank} of 2"):
            BatchOrder(num_samples=90, batch_size=8, seed=0, rank=rank, world_size=2)

    def test_too_few_samples(self):
        with pytest.raises(DataError, match="batch_size 8 is larger than the 7 training images"):
            BatchOrder(num_samples=7, batch_size=8, seed=0)

    def test_seeds_are_stable_and_distinct(self):
        assert derive_seed(0, 0, "order") == 1831614450559561184
        assert len({derive_seed(seed, epoch) for seed in range(20) for epoch in range(20)}) == 400


class TestConfig:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
            ({"eval_batch_size": 0}, "eval_batch_size must be a whole number of at least 1, got 0"),
            ({"padding": -1}, "padding must be a whole number of at least 0, got -1"),
            ({"cutout": -1}, "cutout must be a whole number of at least 0, got -1"),
            ({"image_size": 0}, "image_size must be a whole number of at least 1, got 0"),
            ({"image_size": 300, "resize_size": 256}, "resize_size must be a whole number of at least 300, got 256"),
            ({"workers": -1}, "workers must be a whole number of at least 0, got -1"),
            (
                {"interpolation": "cubic"},
                "interpolation must be one of nearest, bilinear, bicubic, lanczos, got 'cubic'",
            ),
            ({"std": (0.5, 0.0, 1.0)}, "std must hold positive numbers"),
            ({"std": ()}, "std must hold positive numbers"),
            ({"least_crop": 0}, "least_crop must be a number above 0"),
        ],
    )
    def test_impossible_values(self, options, message):
        with pytest.raises(ConfigError, match=message):
            DataConfig(**options)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("digits", {"image_size": 32}, "image_size has no effect on the data set 'digits'"),
            ("cifar10", {"rand_augment": True}, "rand_augment has no effect on the data set 'cifar10'"),
            ("cifar10", {"least_crop": 0.5}, "least_crop has no effect on the data set 'cifar10'"),
            ("folder", {"cutout": 8}, "cutout has no effect on the data set 'folder'"),
            ("folder", {"padding": 0}, "padding has no effect on the data set 'folder'"),
            ("digits", {"mean": (0.1, 0.2)}, "mean needs 1 numbers"),
        ],
    )
    def test_options_that_do_not_fit(self, name, options, message, tmp_path):
        with pytest.raises(ConfigError, match=message):
            load_dataset(name, None if name == "digits" else tmp_path, DataConfig(**options))

    def test_own_statistics_are_used(self):
        data = load_dataset("digits", config=DataConfig(mean=(0.0,), std=(1.0,)))
        images, _ = next(data.val.batches())
        assert (data.mean, data.std) == ((0.0,), (1.0,))
        assert images.min() == 0
        assert images.max() == 1


class TestLoad:
    def test_digits(self):
        data = load_dataset("digits")
        assert (data.name, data.num_classes, data.input_shape) == ("digits", 10, (1, 16, 16))
        assert (data.train.num_samples, data.val.num_samples) == (1437, 360)
        test_labels = torch.cat([labels for _, labels in data.val.batches()])
        assert test_labels.bincount().tolist() == [36] * 10
        seen = torch.cat(
            [images for images, _ in load_dataset("digits", config=DataConfig(padding=0)).train.batches(0)]
        )
        assert seen.mean().abs() < 0.02
        assert abs(seen.std() - 1) < 0.02

    def test_digits_are_the_ones_of_scikit_learn(self):
        from pcshrink.data.digits import load_digits

        original = pytest.importorskip("sklearn.datasets").load_digits()
        _, train_labels, test_images, test_labels = load_digits()
        counts = torch.cat([train_labels, test_labels]).bincount()
        assert counts.equal(torch.from_numpy(original.target).bincount())
        # Enlarging leaves the four corner pixels as they are.
        corners = {tuple(image[[0, 0, -1, -1], [0, -1, 0, -1]]) for image in original.images.round().astype(int)}
        for image in test_images[:, 0]:
            corner = image[[0, 0, -1, -1], [0, -1, 0, -1]].float() * 16 / 255
            assert tuple(corner.round().int().tolist()) in corners

    @pytest.mark.parametrize(
        ("name", "hint"),
        [("cifar-10", "did you mean 'cifar10'"), ("mnist", "known are digits, cifar10, folder")],
    )
    def test_unknown_name(self, name, hint):
        with pytest.raises(ConfigError, match=f"unknown data set '{name}', {hint}"):
            load_dataset(name)

    @pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
    def test_root_is_needed(self, name):
        with pytest.raises(ConfigError, match=f"the data set '{name}' needs a root folder"):
            load_dataset(name)
