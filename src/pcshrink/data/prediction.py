"""What a saved network says about images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pcshrink.artifact import load, read
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.data.folder_scan import EXTENSIONS
from pcshrink.data.images import read_images
from pcshrink.errors import CheckpointError, ConfigError, DataError
from pcshrink.export.onnx import read_preprocessing
from pcshrink.runtime.onnxruntime import onnx_session

Scores = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Prediction:
    """What a network says about one image.

    Attributes:
        path: The image.
        names: The likeliest classes, the likeliest first; their numbers where nobody named them.
        shares: How likely the network takes each of them to be, from 0 to 1.
    """

    path: str
    names: tuple[str, ...]
    shares: tuple[float, ...]


def predict(
    source: str | Path, images: str | Path | Iterable[str | Path], *, top: int = 5, trust: bool = False
) -> list[Prediction]:
    """Classify image files with a saved network.

    Args:
        source: The folder of an artifact, or an ONNX file that was exported from one.
        images: Image files, or folders of them; one may be given by itself.
        top: How many classes to name.
        trust: Run a builder of the user's own that the artifact names.

    Raises:
        CheckpointError: There is no such network, or it does not say how images become its input.
        DataError: An image is missing or broken.
        ConfigError: ``top`` is no number of classes.
    """
    if type(top) is not int or top < 1:
        message = f"top must be a whole number of at least 1, got {top!r}"
        raise ConfigError(message)
    files = _files([images] if isinstance(images, str | Path) else images)
    network, seen = _open(Path(source), trust)
    predictions = []
    for path in files:
        scores = network(read_images([path], seen))
        if scores.ndim != 2:
            message = f"{source} is no classifier: it gives shape {tuple(scores.shape)} for one image"
            raise CheckpointError(message)
        shares, best = scores[0].float().softmax(0).topk(min(top, scores.shape[1]))
        numbers = best.tolist()
        names = seen.classes if len(seen.classes) == scores.shape[1] else tuple(map(str, range(scores.shape[1])))
        predictions.append(Prediction(str(path), tuple(names[n] for n in numbers), tuple(shares.tolist())))
    return predictions


def _files(images: Iterable[str | Path]) -> Sequence[Path]:
    files: list[Path] = []
    for entry in map(Path, images):
        if not entry.is_dir():
            files.append(entry)
            continue
        try:
            inside = sorted(path for path in entry.rglob("*") if path.name.lower().endswith(EXTENSIONS))
        except OSError as error:
            message = f"{entry} cannot be searched for images: {error}"
            raise DataError(message) from error
        if not inside:
            message = f"there are no images in {entry}"
            raise DataError(message)
        files += inside
    return files


def _open(source: Path, trust: bool) -> tuple[Scores, Preprocessing]:
    from_file = source.suffix == ".onnx"
    seen = read_preprocessing(source) if from_file else read(source).preprocessing
    if seen is None:
        message = (
            f"{source} does not say how images become its input; save the network with preprocessing=..."
            + (" and export it again" if from_file else "")
        )  # fmt: skip
        raise CheckpointError(message)
    return _onnx(source) if from_file else _torch(source, trust), seen


def _torch(source: Path, trust: bool) -> Scores:
    model = load(source, trust_builder=trust)

    @torch.no_grad()
    def call(batch: Tensor) -> Tensor:
        scores: Tensor = model(batch)
        return scores

    return call


def _onnx(source: Path) -> Scores:
    session = onnx_session(source)
    entry = session.get_inputs()[0]
    size = entry.shape[0] if isinstance(entry.shape[0], int) else 1  # a fixed batch wants as many images

    def call(batch: Tensor) -> Tensor:
        outputs = session.run(None, {entry.name: batch.repeat(size, 1, 1, 1).numpy()})
        return torch.as_tensor(outputs[0])[:1]

    return call
