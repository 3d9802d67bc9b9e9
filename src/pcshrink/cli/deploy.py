"""The commands that bring a saved model to where it runs: ``export`` and ``bench``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcshrink.errors import ConfigError
from pcshrink.export.registry import EXPORT_FORMATS
from pcshrink.runtime.registry import RUNTIMES

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pcshrink.measure.latency import Comparison
    from pcshrink.runtime.registry import Runtime

Builder = Annotated[
    str | None,
    typer.Option(
        "--model", help="How the full-size network is made, where the folder does not say (package.module:callable)."
    ),
]
Shape = Annotated[str | None, typer.Option("--input", help="One sample, for example 3,224,224 (default: as saved).")]
Trust = Annotated[bool, typer.Option("--trust", help="Run code of your own that the folder or an option names.")]
Where = Annotated[str, typer.Option("--runtime", help=f"{RUNTIMES}.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command("export")(export)
    app.command("bench")(bench)
    app.command("widths")(widths)


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A saved model.")],
    format: Annotated[str, typer.Option("--format", help=f"{EXPORT_FORMATS}.")] = "onnx",
    batch: Annotated[str, typer.Option("--batch", help='A number, or "dynamic".')] = "1",
    out: Annotated[
        Path | None, typer.Option("--out", help="The file (default: in DIR, for example model.onnx).")
    ] = None,
    model: Builder = None,
    shape: Shape = None,
    trust: Trust = False,
) -> None:
    """Write a saved model for another runtime, compared with it on 256 inputs before the file gets its name."""
    chosen = EXPORT_FORMATS.get(format, trust=trust)
    size: Any = "dynamic" if batch == "dynamic" else _numbers(batch, "--batch")[0]
    folder = saved_in(folder)
    network = load_for(folder, model, trust)
    target = out or folder / f"model{chosen.suffix}"
    typer.echo(str(chosen.write(network, example_for(folder, network, shape, 2), target, batch=size)))


def bench(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Saved models; ratios are against the first.")
    ],
    runtime: Where = "onnxruntime",
    batch: Annotated[str, typer.Option("--batch", help="Batch sizes, for example 1,32.")] = "1",
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads of the runtime.")] = 1,
    seconds: Annotated[float, typer.Option("--seconds", help="About how long to measure each model.")] = 2.0,
    dense: Annotated[
        bool, typer.Option("--dense", help="Also time the full-size network of the first folder.")
    ] = False,
    why: Annotated[bool, typer.Option("--why", help="Times by layer, first model against the last.")] = False,
    model: Builder = None,
    shape: Shape = None,
    trust: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Time saved models side by side; a difference is claimed only where it is beyond the noise."""
    from pcshrink.measure.latency import compare
    from pcshrink.runtime.run import check_runtime

    place = check_runtime(runtime, trust=trust)
    networks: dict[str, nn.Module] = {}
    if dense:
        networks["dense"] = dense_of(saved_in(folders[0]), model, trust)
    for folder in folders:
        networks[_short(folder, folders)] = load_for(saved_in(folder), model, trust)
    comparisons = []
    for size in _numbers(batch, "--batch"):
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
    runtime: Where = "onnxruntime",
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads of the runtime.")] = 1,
    trust: Annotated[bool, typer.Option("--trust", help="Run a runtime of your own.")] = False,
) -> None:
    """Show which numbers of channels this machine likes, and the alignment that follows."""
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

    sizes = tuple(_numbers(shape, "--input")) if shape else read(folder).input_shape or default_input(network)
    return torch.randn(batch, *sizes, generator=torch.Generator().manual_seed(0))


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
    for name, time in timed.results.items():
        ratio = timed.ratio(name, first)
        rows[name] = asdict(time) | {"ratio": asdict(ratio), "verdict": ratio.verdict}
    return rows


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.replace("x", ",").split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        message = f"{option} must be numbers of at least 1, for example 1,32; got {text!r}"
        raise ConfigError(message)
    return numbers


def _short(folder: Path, folders: list[Path]) -> str:
    """The shortest name that tells the folders apart."""
    last = folder.name or str(folder)
    return last if sum((other.name or str(other)) == last for other in folders) == 1 else str(folder)
