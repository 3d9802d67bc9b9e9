"""Pickled CIFAR-10 batches are read without running anything."""

import os
import pickle

import numpy as np
import pytest
import torch

from pcshrink.data.cifar10.unpickle import read_pickled_batch
from pcshrink.errors import DataError
from testing.cifar10_files import IMAGES, RECORDS, contents, python2_string

pytestmark = pytest.mark.unit


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
