"""Finds the shards of a data set, and which images in them are for training and which for evaluation."""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from pcshrink.common.progress import track
from pcshrink.data.class_order import ClassOrder
from pcshrink.data.decode import Span
from pcshrink.data.folder_scan import FolderFiles, ImageFiles, hold_out, images_below
from pcshrink.data.tar_index import Entry, index_shard
from pcshrink.errors import DataError

CLASSES_FILE = "classes.txt"
_LAYOUT = (
    "expected train-000000.tar ... and val-000000.tar ... in one folder or in folders train and val, or a pattern such "
    "as 'shards/{train,val}-*.tar'"
)
_PART = re.compile(r"(?:^|[^a-z])(train|val)(?:ing|id|idation)?(?:[^a-z]|$)")
_PACKED = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")  # those that are not plain say so when read
_WILD = "*?["
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_CLASSES = 1_000_000  # where nothing names them: a label beyond is no label
_SHARDS_WITHOUT_WORDS = 16  # as many are read in no time

Shards = dict[str, list[Path]]
Members = list[tuple[Path, Entry]]


def scan_shards(
    root: str | Path, order: ClassOrder | None = None, *, holdout: float = 0.2, seed: int = 0, progress: bool = False
) -> FolderFiles:
    """Return the training and the validation images in shards.

    Args:
        root: A folder with shards, or a pattern; names or folders say which are `train` and which `val`. Without `val`
            a share is held out.
        order: Which class belongs to which output; by default a label is the number of its output.
        holdout: Where there is no `val`: the share of every class that is held out.
        seed: Where there is no `val`: which images these are.
        progress: Show how far the reading has come, where it takes time.

    Raises:
        DataError: There are no shards, one of them is unusable, or labels are out of range.
    """
    shards = find_shards(root)
    if shards["val"] and not shards["train"]:
        msg = f"{root} has shards to evaluate on ({shards['val'][0].name}, ...) but none to train on; {_LAYOUT}"
        raise DataError(msg)
    named = bool(shards["train"])
    labels = _Labels(shards, order)
    members = _read(shards["train"] if named else shards[""], progress)
    classes = labels.classes(members)
    train = labels.files(members, classes)
    if order is None:
        _refuse_empty_classes(root, members, classes)
    note = f"{len(shards[''])} shards in {root} are neither train nor val, and left out" if named and shards[""] else ""
    if shards["val"]:
        return FolderFiles(train, labels.files(_read(shards["val"], progress), classes), note)
    names = [entry.name for _, entry in _in_order(members)]
    files = hold_out(train, names, Path(root), holdout, seed)
    return FolderFiles(files.train, files.val, "; ".join(filter(None, (files.note, note))))


def scan_shards_evaluation(root: str | Path, order: ClassOrder | None = None) -> ImageFiles:
    """Return the images to evaluate on: those of `val`, or all where names do not say which they are.

    Raises:
        DataError: There are none, or only some to train on.
    """
    shards = find_shards(root)
    chosen = shards["val"] or shards[""] or ([] if Path(root).is_dir() else shards["train"])
    if not chosen:
        msg = f"{root} has shards to train on and no val; to evaluate on them, name them: {Path(root) / 'train-*.tar'}"
        raise DataError(msg)
    labels, members = _Labels(shards, order), _read(chosen, progress=False)
    return labels.files(members, labels.classes(members))


def looks_like_shards(root: str | Path) -> bool:
    """Whether there are shards rather than folders of images."""
    place = Path(root)
    if not place.is_dir():
        return any(sign in str(root) for sign in _WILD + "{") or str(root).endswith(_PACKED)
    home = place / "train" if (place / "train").is_dir() else place
    if not (any(_packed_in(place)) or any(_packed_in(home))):
        return False
    return not any(any(images_below(folder)) for folder in home.iterdir() if folder.is_dir())


def find_shards(root: str | Path) -> Shards:
    """The shards for `train`, for `val`, and those (under "") whose names say neither, sorted by name.

    Raises:
        DataError: There are none, or one that a pattern names is missing.
    """
    place = Path(root)
    if place.is_dir():
        paths = [path for folder in (place, *_parts_in(place)) for path in _packed_in(folder)]
    elif place.is_file():
        paths = [place]
    else:
        paths = [path for pattern in expand_braces(str(root)) for path in _matching(pattern)]
    if not paths:
        what = "has no shards" if place.is_dir() else "does not exist"
        msg = f"{root} {what}; {_LAYOUT}; pcshrink data shards makes some from a folder of images"
        raise DataError(msg)
    shards: Shards = {"train": [], "val": [], "": []}
    for path in sorted(set(paths)):
        shards[_part_of(path)].append(path)
    return shards


def expand_braces(pattern: str) -> list[str]:
    """Write a pattern out as WebDataset does.

    Example:
        >>> expand_braces("{train,val}-{08..10}.tar")[1:4]
        ['train-09.tar', 'train-10.tar', 'val-08.tar']
    """
    pieces = _BRACES.split(pattern)
    choices = [[piece] if place % 2 == 0 else list(_choices(piece)) for place, piece in enumerate(pieces)]
    return ["".join(words) for words in product(*choices)]


def _choices(inside: str) -> Iterator[str]:
    for word in inside.split(","):
        numbers = re.fullmatch(r"(\d+)\.\.(\d+)", word)
        if numbers is None:
            yield word
        else:
            first, last = numbers.groups()
            yield from (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))


def _matching(pattern: str) -> Iterator[Path]:
    path = Path(pattern)
    if any(sign in pattern for sign in _WILD):
        matches = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
        yield from (each for each in matches if each.name.endswith(_PACKED))
    elif path.is_file():
        yield path
    else:
        msg = f"the shard {pattern} does not exist; {_LAYOUT}"
        raise DataError(msg)


def _packed_in(folder: Path) -> Iterator[Path]:
    try:
        yield from (e for e in folder.iterdir() if e.name.endswith(_PACKED) and not e.name.startswith("."))
    except OSError as error:
        msg = f"cannot read the folder of shards {folder}: {error}"
        raise DataError(msg) from error


def _parts_in(place: Path) -> list[Path]:
    return [folder for folder in place.iterdir() if folder.is_dir() and _PART.fullmatch(folder.name.lower())]


def _part_of(path: Path) -> str:
    own = _PART.search(path.name.lower()) or _PART.fullmatch(path.absolute().parent.name.lower())
    return own[1] if own is not None else ""


def _home(path: Path) -> Path:
    """The folder of the whole set."""
    folder = path.absolute().parent
    return folder.parent if _PART.fullmatch(folder.name.lower()) else folder


def _read(shards: Sequence[Path], progress: bool) -> Members:
    shown = progress and len(shards) > _SHARDS_WITHOUT_WORDS
    with track(f"reading what is in {len(shards)} shards", len(shards), enabled=shown) as advance:
        members = []
        for shard in shards:
            members += [(shard, entry) for entry in index_shard(shard)]
            advance(1)
    if not members:
        msg = f"there are no images in {shards[0]}" + (f" and {len(shards) - 1} more shards" if shards[1:] else "")
        raise DataError(msg)
    return members


def _in_order(members: Members) -> Members:
    """By label, then name: the order of folders, whatever the order in which the shards were written."""
    return sorted(members, key=lambda each: (each[1].label, each[1].name, each[0], each[1].offset))


class _Labels:
    """From the labels of shards to the outputs of a network."""

    def __init__(self, shards: Shards, order: ClassOrder | None) -> None:
        homes = {_home(path) for paths in shards.values() for path in paths}
        file = next((f for f in (home / CLASSES_FILE for home in sorted(homes)) if f.is_file()), None)
        self._own = ClassOrder.of(file) if file is not None else None
        self._order = order

    def classes(self, members: Members) -> tuple[str, ...]:
        """Names of the outputs; numbers, where nobody has named them."""
        known = self._order or self._own
        if known is not None:
            return known.names
        return tuple(map(str, range(min(max(entry.label for _, entry in members), _MOST_CLASSES - 1) + 1)))

    def files(self, members: Members, classes: tuple[str, ...]) -> ImageFiles:
        """The images with their outputs, in order."""
        members = _in_order(members)
        count = len(self._own.names) if self._own is not None else len(classes)
        for shard, entry in (members[0], members[-1]):
            if not 0 <= entry.label < count:
                msg = (
                    f"the label {entry.label} of {shard}/{entry.name} is out of range: there are {count} classes, 0 to "
                    f"{count - 1}" + (f" ({self._own.origin})" if self._own is not None else "")
                )
                raise DataError(msg)
        outputs = {label: self._output(label) for label in {entry.label for _, entry in members}}
        texts = {shard: str(shard) for shard, _ in members}
        return ImageFiles(
            tuple(f"{texts[shard]}/{entry.name}" for shard, entry in members),
            tuple(outputs[entry.label] for _, entry in members),
            classes,
            tuple(Span(texts[shard], entry.offset, entry.size) for shard, entry in members),
        )

    def _output(self, label: int) -> int:
        """The same number, unless both sides have names."""
        if self._order is None or self._own is None:
            return label
        name = self._own.names[label]
        return self._order.number(name, f"the class {name!r} of {self._own.origin}")


def _refuse_empty_classes(root: str | Path, members: Members, classes: tuple[str, ...]) -> None:
    """Labels that count from 1 would otherwise pass, with an output that nothing belongs to."""
    seen = {entry.label for _, entry in members}
    missing = [name for label, name in enumerate(classes) if label not in seen]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if missing[5:] else "")
        msg = (
            f"there are classes without training images in {root}: {shown}; labels count from 0 without a gap "
            f"(or name the outputs in a file of classes: data.classes)"
        )
        raise DataError(msg)
