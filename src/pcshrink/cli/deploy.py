"""The commands that bring a saved model to where it runs: ``export``, ``bench`` and ``widths``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcshrink.cli.options import (
    AsJson,
    Builder,
    SavedModel,
    SavedShape,
    Threads,
    Trust,
    examples,
    parse_numbers,
    parse_shape,
)
from pcshrink.errors import ConfigError
from pcshrink.export.registry import EXPORT_FORMATS
from pcshrink.runtime.registry import DEFAULT_RUNTIME, RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from pcshrink.common.preprocessing import Preprocessing
    from pcshrink.measure.latency import Comparison
    from pcshrink.runtime.registry import Runtime

Format = Annotated[
    str, typer.Option("--format", help=f"{EXPORT_FORMATS}.", autocompletion=lambda: list(EXPORT_FORMATS))
]
Place = Annotated[str, typer.Option("--runtime", help=f"{RUNTIMES}.", autocompletion=lambda: list(RUNTIMES))]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command(
        "export",
        epilog=examples(
            "pcshrink export runs/digits",
            "pcshrink export runs/digits --format openvino --batch dynamic --out digits.xml",
            "pcshrink export runs/faster --int8 --images photos",
        ),
    )(export)
    app.command(
        "bench",
        epilog=examples(
            "pcshrink bench runs/digits --dense --why",
            "pcshrink bench runs/first runs/second --runtime openvino --batch 1,32",
        ),
    )(bench)
    app.command("widths", epilog=examples("pcshrink widths --runtime onnxruntime --threads 1"))(widths)


def export(
    folder: SavedModel,
    format: Format = "onnx",
    batch: Annotated[
        str, typer.Option("--batch", metavar="SIZE", help='The batch size: a number, or "dynamic".')
    ] = "1",
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write (default: in DIR, for example model.onnx).")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Also write an 8-bit ONNX file, calibrated on --images.")
    ] = False,
    images: Annotated[
        Path | None, typer.Option("--images", help="For --int8: a folder of images; a part is held out to compare on.")
    ] = None,
    model: Builder = None,
    shape: SavedShape = None,
    trust: Trust = False,
) -> None:
    """Write a saved model for another runtime.

    What was written is compared with the model on 256 inputs before the file gets its name.
    """
    chosen = EXPORT_FORMATS.get(format, trust=trust)
    if int8 and (format != "onnx" or images is None or batch == "dynamic"):
        message = "--int8 needs --format onnx, --images DIR to calibrate with, and a fixed --batch"
        raise ConfigError(message)
    if images is not None and not int8:
        message = "--images is only used with --int8; add that, or leave --images out"
        raise ConfigError(message)
    sizes = () if batch == "dynamic" else parse_numbers(batch, "--batch", '1 or "dynamic"')
    if len(sizes) > 1:
        message = f'--batch wants one size here, or "dynamic" for all; got {batch}'
        raise ConfigError(message)
    size: Any = sizes[0] if sizes else "dynamic"
    folder = saved_in(folder)
    network = load_for(folder, model, trust)
    target = out or folder / f"model{chosen.suffix}"
    if target.suffix != chosen.suffix and ":" not in format:  # code of the user's own may write what it likes
        message = f"--format {format} writes {chosen.suffix} files, got --out {target}"
        raise ConfigError(message)
    preprocessing = _preprocessing(folder, shape)
    calibration = None if images is None else _calibration(folder, images, preprocessing, size)
    more = {"preprocessing": preprocessing} if chosen.describes else {}
    typer.echo(str(chosen.write(network, example_for(folder, network, shape, 2), target, batch=size, **more)))
    if calibration is not None:
        _write_int8(target, *calibration)


def _calibration(
    folder: Path, images: Path, preprocessing: Preprocessing | None, batch: int
) -> tuple[Iterator[Tensor], Iterator[Tensor]]:
    """The images for an 8-bit file; asked for before anything is written."""
    from pcshrink.cli.calibrate import image_batches

    if preprocessing is None:
        message = f"the model of {folder} does not say how images become its input, so --int8 cannot be calibrated"
        raise ConfigError(message)
    return image_batches(images, preprocessing, batch)


def _write_int8(source: Path, calibration: Iterator[Tensor], held_out: Iterator[Tensor]) -> None:
    from pcshrink.export.int8 import quantise_onnx

    report = quantise_onnx(source, source.with_suffix(".int8.onnx"), calibration, held_out)
    typer.echo(str(report))
    if report.warning:
        typer.echo(f"warning: {report.warning}", err=True)


def bench(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Finished runs or saved models; ratios are against the first."),
    ],
    runtime: Place = DEFAULT_RUNTIME,
    batch: Annotated[str, typer.Option("--batch", metavar="SIZES", help="Batch sizes, for example 1,32.")] = "1",
    threads: Threads = 1,
    seconds: Annotated[
        float, typer.Option("--seconds", help="About how long to measure each model, in seconds.")
    ] = 2.0,
    dense: Annotated[
        bool, typer.Option("--dense", help="Also time the full-size network of the first folder.")
    ] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Also time every layer by itself, the first model against the last.")
    ] = False,
    model: Builder = None,
    shape: SavedShape = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Time saved models side by side.

    They run in turns, and a difference is claimed only where it is beyond the noise.
    """
    from pcshrink.measure.latency import compare
    from pcshrink.runtime.run import check_runtime

    place = check_runtime(runtime, trust=trust)
    if len({saved_in(folder).resolve() for folder in folders}) < len(folders):
        message = f"a network is named twice: {' '.join(map(str, folders))}; it would be compared with itself"
        raise ConfigError(message)
    if not shape:
        _same_inputs([saved_in(folder) for folder in folders])
    networks: dict[str, nn.Module] = {}
    if dense:
        networks["dense"] = dense_of(saved_in(folders[0]), model, trust)
    for folder in folders:
        networks[_short(folder, folders)] = load_for(saved_in(folder), model, trust)
    comparisons = []
    for size in parse_numbers(batch, "--batch", "1,32"):
        example = example_for(saved_in(folders[0]), next(iter(networks.values())), shape, size)
        timed = compare(networks, example, place, threads=threads, seconds=seconds)
        comparisons.append(_plain(timed))
        if not as_json:
            typer.echo(f"{runtime}, batch {size}, {threads} threads")
            typer.echo(timed.table())
            if why:
                _explain(networks, example, place, threads, timed)
            typer.echo("")
    if as_json:
        typer.echo(json.dumps(comparisons, indent=1))


def widths(
    runtime: Place = DEFAULT_RUNTIME,
    threads: Threads = 1,
    trust: Trust = False,
) -> None:
    """Show which numbers of channels this machine likes.

    The alignment that follows is a good value for a recipe's shrink.align.
    """
    from pcshrink.measure.widths import measure_staircase
    from pcshrink.runtime.run import check_runtime

    typer.echo(str(measure_staircase(check_runtime(runtime, trust=trust), threads=threads)))


def saved_in(folder: Path) -> Path:
    """The saved model in a folder: the folder itself, or the ``model`` in that of a training run."""
    inner = folder / "model"
    return inner if not (folder / "pcshrink.json").exists() and (inner / "pcshrink.json").exists() else folder


def load_for(folder: Path, model: str | None, trust: bool) -> nn.Module:
    """A saved model, with the user's own network where the folder names no builder."""
    from pcshrink.artifact import load
    from pcshrink.models import create

    return load(folder, model=create(model) if model else None, trust_builder=trust)


def dense_of(folder: Path, model: str | None, trust: bool) -> nn.Module:
    """The full-size network that a saved model was cut from, with random weights."""
    from pcshrink.artifact import read
    from pcshrink.artifact.builders import build, is_known
    from pcshrink.models import create

    if model:
        return create(model)
    saved = read(folder)
    if saved.builder is None or not (trust or is_known(saved.builder)):
        message = f"{folder} does not say how its full-size network is made, or you do not trust it; pass --model"
        raise ConfigError(message)
    return build(saved.builder, saved.builder_args)


def example_for(folder: Path, network: nn.Module, shape: str | None, batch: int) -> Tensor:
    """Random inputs of the shape the user gave, else the saved one, else a guess."""
    import torch

    from pcshrink.artifact import read
    from pcshrink.models import default_input

    sizes = parse_shape(shape) if shape else read(folder).input_shape or default_input(network)
    return torch.randn(batch, *sizes, generator=torch.Generator().manual_seed(0))


def _same_inputs(folders: list[Path]) -> None:
    """Refuse to time networks together that were saved for inputs of different sizes."""
    from pcshrink.artifact import read

    shapes = {str(folder): read(folder).input_shape for folder in folders}
    stated = {shape for shape in shapes.values() if shape is not None}
    if len(stated) > 1:
        named = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in shapes.items() if shape)
        message = f"the networks take inputs of different sizes ({named}); pass --input to time all of them at one"
        raise ConfigError(message)


def _preprocessing(folder: Path, shape: str | None) -> Preprocessing | None:
    """What a saved model says about its images; nothing where the user exports it for inputs of another size."""
    from pcshrink.artifact import read

    saved = read(folder).preprocessing
    return saved if saved is not None and shape in (None, ",".join(map(str, saved.input_size))) else None


def _explain(
    networks: dict[str, nn.Module], example: Tensor, runtime: Runtime, threads: int, timed: Comparison
) -> None:
    from pcshrink.measure.explain import explain, overheads, table_of
    from pcshrink.measure.layers import LayerTable

    if len(networks) < 2:
        message = "--why compares two models; name two folders, or add --dense"
        raise ConfigError(message)
    first, *_, last = networks
    table = LayerTable(runtime if runtime.by_layer else "eager", threads)
    changes = explain(networks[first], networks[last], example, table)
    typer.echo(f"\nby layer, {first} -> {last}, those that lost the most first:")
    typer.echo(table_of(changes))
    typer.echo(overheads(changes, {name: timed.results[name].median_ms for name in (first, last)}))


def _plain(timed: Comparison) -> dict[str, Any]:
    """A comparison as JSON."""
    from dataclasses import asdict

    first = next(iter(timed.results))
    rows = {}
    for name, latency in timed.results.items():
        ratio = timed.ratio(name, first)
        rows[name] = asdict(latency) | {"ratio": asdict(ratio), "verdict": ratio.verdict}
    return rows


def _short(folder: Path, folders: list[Path]) -> str:
    """The shortest name that tells the folders apart."""
    last = folder.name or str(folder)
    return last if sum((other.name or str(other)) == last for other in folders) == 1 else str(folder)
