"""Options that several commands have, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcshrink.errors import ConfigError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text for people.")]
Builder = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="How the full-size network is made, where the folder does not say: a model's name, or "
        "package.module:callable.",
    ),
]
SavedModel = Annotated[Path, typer.Argument(metavar="DIR", help="A finished run, or the folder of a saved model.")]
SavedShape = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="SIZES",
        help="One input sample without the batch, for example 3,224,224 (default: as saved).",
    ),
]
Threads = Annotated[int, typer.Option("--threads", min=1, help="Threads that the runtime may use.")]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run code of your own (package.module:callable) that the folder or an option names."),
]


def examples(*commands: str) -> str:
    """The end of a command's help: lines to copy, kept as they are."""
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])


def parse_numbers(text: str, option: str, example: str) -> tuple[int, ...]:
    """``3,224,224`` or ``3x224x224`` as whole numbers.

    Raises:
        ConfigError: It is something else.
    """
    try:
        numbers = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        message = f"{option} wants whole numbers of at least 1 such as {example}, got {text!r}"
        raise ConfigError(message)
    return numbers


def parse_shape(text: str) -> tuple[int, ...]:
    """The value of ``--input``.

    Raises:
        ConfigError: It is no list of sizes.
    """
    return parse_numbers(text, "--input", "3,224,224 (one sample, no batch axis)")
