"""The files for other runtimes that a recipe asks for: looked at before a run, written at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import ConfigError
from pcshrink.export.registry import EXPORT_FORMATS


def check_formats(names: Sequence[str], *, trust: bool) -> None:
    """See that these formats can be written into one folder, before hours are spent; from then on they are known.

    Raises:
        ConfigError: One is unknown, needs what is not installed, or is code that nobody trusts; or two have one file.
    """
    written: dict[str, str] = {}
    for name in names:
        chosen = EXPORT_FORMATS.get(name, trust=trust)
        chosen.check()
        other = written.setdefault(chosen.suffix, name)
        if other != name:
            message = f"output.export: {other} and {name} would both write model{chosen.suffix}; choose one of them"
            raise ConfigError(message)


def write_exports(
    names: Sequence[str], model: nn.Module, example_input: object, folder: Path, preprocessing: Preprocessing | None
) -> dict[str, str]:
    """Write a network in each of these formats into a folder.

    Returns:
        Name of the format -> its file.

    Raises:
        VerificationError: What was written does not give the network's outputs.
    """
    files = {}
    for name in names:
        chosen = EXPORT_FORMATS.get(name)
        target = folder / f"model{chosen.suffix}"
        more = {"preprocessing": preprocessing} if chosen.describes else {}
        chosen.write(model, example_input, target, batch=None, **more)
        files[name] = str(target)
    return files
