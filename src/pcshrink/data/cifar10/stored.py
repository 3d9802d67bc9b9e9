"""CIFAR-10 as it is kept: one checked file, loaded into memory at once.

The prepared file `cifar10.bin` is the six official binary batches one after the other, the test batch last.
Whatever the source was, the sha256 of every batch is compared with `CIFAR10_SHA256`; these belong to the
bytes whose md5 are published for the official `cifar-10-batches-bin` (5dd7e06a ... for data_batch_1.bin to
803d5f7f ... for test_batch.bin).
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from pcshrink.data.array_set import Arrays, ArraySet
from pcshrink.data.cifar10.read import BATCHES, RECORD
from pcshrink.errors import DataError

PREPARED = "cifar10.bin"
CIFAR10_SHA256 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)


def load_cifar10(root: str | Path, *, expected: Sequence[str] = CIFAR10_SHA256) -> Arrays:
    """Return train images, train labels, test images and test labels of a prepared CIFAR-10.

    Images are uint8 (N, 3, 32, 32), labels int64 (N,), in the official order.

    Args:
        root: The folder given to `prepare_cifar10`.
        expected: sha256 of the six batches in binary format, the test batch last.

    Raises:
        DataError: It was not prepared, or the file is damaged.
    """
    content = read_prepared(Path(root) / PREPARED, expected)
    records = torch.frombuffer(content, dtype=torch.uint8).view(-1, RECORD)
    images = records[:, 1:].contiguous().view(-1, 3, 32, 32)
    labels = records[:, 0].long()
    first_test = len(labels) - len(labels) // len(BATCHES)
    return images[:first_test], labels[:first_test], images[first_test:], labels[first_test:]


CIFAR10_ARRAYS = ArraySet(
    name="cifar10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.49139968, 0.48215841, 0.44653091),
    std=(0.24703223, 0.24348513, 0.26158784),
    padding=4,
    flip=True,
)
CIFAR10 = CIFAR10_ARRAYS.data_set(
    load_cifar10, needs_root=True, description="60000 images of 10 kinds; see `pcshrink data cifar10`"
)


def read_prepared(path: Path, expected: Sequence[str]) -> bytearray:
    """Return the content of the prepared file.

    Raises:
        DataError: It is missing or damaged.
    """
    command = f"`pcshrink data cifar10 --root {path.parent}`"
    try:
        content = bytearray(path.stat().st_size)
        with path.open("rb") as file:
            file.readinto(content)
    except FileNotFoundError as error:
        msg = f"no prepared CIFAR-10 in {path.parent} ({path.name} is missing); run {command}"
        raise DataError(msg) from error
    except OSError as error:
        msg = f"cannot read {path}: {error}"
        raise DataError(msg) from error
    size, rest = divmod(len(content), len(BATCHES))
    if not size or rest or size % RECORD:
        msg = f"{path} is damaged ({len(content)} bytes); delete it and run {command}"
        raise DataError(msg)
    view = memoryview(content)
    check_batches([view[start : start + size] for start in range(0, len(content), size)], expected, str(path))
    return content


def check_batches(batches: Sequence[bytes | memoryview], expected: Sequence[str], origin: str) -> None:
    """Make sure that these are the six batches, whatever they came from.

    Raises:
        DataError: One has another content.
    """
    for name, batch, wanted in zip(BATCHES, batches, expected, strict=True):
        digest = hashlib.sha256(batch).hexdigest()
        if digest != wanted:
            msg = (
                f"{name} from {origin} does not have the content of CIFAR-10: "
                f"sha256 {digest}, expected {wanted}; delete it and get it again"
            )
            raise DataError(msg)
