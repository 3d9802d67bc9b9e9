"""8-bit ONNX files: onnxruntime's static quantisation, calibrated on images, compared and timed beside float."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pcshrink.common.files import staged
from pcshrink.errors import DataError, VerificationError
from pcshrink.measure.timing import Ratio, clock_for, interleave, median_interval, paired_ratio
from pcshrink.runtime.onnxruntime import onnx_runner, onnx_session
from pcshrink.runtime.optional import require

LEAST_AGREEMENT = 0.98
SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Int8Report:
    """What was written, how well it agrees, and what it gains.

    Attributes:
        path: The file.
        images: How many images the two files were compared on.
        agreement: Share of them with the same largest class.
        bytes: Size of the file.
        float_bytes: Size of the float file.
        float_ms: Time of one batch of the float file.
        int8_ms: The same of the 8-bit file.
        ratio: Its time as a multiple of the float file's.
    """

    path: Path
    images: int
    agreement: float
    bytes: int
    float_bytes: int
    float_ms: float
    int8_ms: float
    ratio: Ratio

    @property
    def warning(self) -> str:
        """Why not to trust the file; empty where there is no reason."""
        if self.agreement >= LEAST_AGREEMENT:
            return ""
        return (
            f"the 8-bit network gives the same class as the float one on only {self.agreement:.1%} of {self.images} "
            f"images (at least {LEAST_AGREEMENT:.0%} are wanted); look at its error before you use it"
        )

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.path}: {self.bytes / 1e6:.2f} MB instead of {self.float_bytes / 1e6:.2f}; same class on "
            f"{self.agreement:.1%} of {self.images} held-out images; {self.int8_ms:.3f} ms "
            f"beside {self.float_ms:.3f} ms, x {self.ratio}"
        )


def quantise_onnx(
    source: Path, path: str | Path, calibration: Iterable[Tensor], held_out: Iterable[Tensor], *, threads: int = 1
) -> Int8Report:
    """Write an 8-bit version of a float ONNX file.

    Args:
        source: The float file, of a classifier with one input.
        path: Where to write.
        calibration: Batches to find the ranges of activations with, of the batch size of the file.
        held_out: Other batches, to compare both files on.
        threads: For the timing.

    Raises:
        DataError: There are no images to calibrate or to compare with.
        VerificationError: onnxruntime cannot quantise this file.
        ConfigError: onnx or onnxruntime is not installed.
    """
    require("onnx", "onnxruntime")
    with staged(path) as temporary:
        _quantise(source, temporary, calibration)
        images, same, first = _agree(source, temporary, held_out)
        times = _time(source, temporary, first, threads)
        size = temporary.stat().st_size
    return Int8Report(
        path=Path(path), images=images, agreement=same / images, bytes=size, float_bytes=source.stat().st_size,
        float_ms=1e3 * median_interval(times["float"])[0], int8_ms=1e3 * median_interval(times["int8"])[0],
        ratio=paired_ratio(times["int8"], times["float"]),
    )  # fmt: skip


def _quantise(source: Path, target: Path, calibration: Iterable[Tensor]) -> None:
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    name = onnx_session(source, 1).get_inputs()[0].name
    reader = _reader(quantization.CalibrationDataReader, name, calibration)
    logging.getLogger().addFilter(_no_advice)
    try:
        with tempfile.TemporaryDirectory(prefix="pcshrink-") as folder:
            ready = Path(folder) / "ready.onnx"
            quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
            quantization.quantize_static(
                str(ready), str(target), reader, quant_format=quantization.QuantFormat.QDQ, per_channel=True,
                activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
            )  # fmt: skip
    except DataError:
        raise
    except Exception as error:  # the quantiser raises anything
        reason = " ".join(str(error).split())[:300]
        message = f"onnxruntime cannot quantise {source}: {type(error).__name__}: {reason}"
        raise VerificationError(message) from error
    finally:
        logging.getLogger().removeFilter(_no_advice)


def _no_advice(record: logging.LogRecord) -> bool:
    """Onnxruntime recommends on the root logger what was done just before."""
    return "pre-processing before quantization" not in record.getMessage()


def _reader(base: Any, name: str, batches: Iterable[Tensor]) -> Any:
    """The batches as onnxruntime wants them."""

    class Reader(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left: Iterator[Tensor] = iter(batches)
            self.seen = 0

        def get_next(self) -> dict[str, Any] | None:
            batch = next(self.left, None)
            if batch is None and not self.seen:
                message = "there are no images to calibrate with"
                raise DataError(message)
            self.seen += 1
            return None if batch is None else {name: batch.numpy()}

    return Reader()


def _agree(source: Path, target: Path, batches: Iterable[Tensor]) -> tuple[int, int, Tensor]:
    """How many images there are, to how many both files give the same class, and the first batch."""
    run_float, run_int8 = onnx_runner(source, 1), onnx_runner(target, 1)
    images = same = 0
    first: Tensor | None = None
    for batch in batches:
        first = batch if first is None else first
        answers = [run([batch])[0].argmax(dim=1) for run in (run_float, run_int8)]
        images += len(batch)
        same += int((answers[0] == answers[1]).sum())
    if first is None:
        message = "there are no images to compare the 8-bit network on"
        raise DataError(message)
    return images, same, first


def _time(source: Path, target: Path, batch: Tensor, threads: int) -> dict[str, list[float]]:
    run_float, run_int8 = onnx_runner(source, threads), onnx_runner(target, threads)
    calls = {"float": lambda: run_float([batch]), "int8": lambda: run_int8([batch])}
    # On a busy machine the wall clock of one thread measures the others.
    return interleave(calls, SECONDS, clock=clock_for(threads))
