"""The export formats by name, and what each of them says about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcshrink.common.registry import Registry, entry_of

if TYPE_CHECKING:
    from pcshrink.export.agree import ExportReport


def _no_demands() -> None:
    """Check nothing: this format is there wherever torch is."""


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """A kind of file that models are written to.

    Attributes:
        name: What it is called on the command line.
        write: ``write(model, example_input, path, *, batch)`` writes the file and reports on it. It leaves the model
            alone and gives the file its name only once its outputs were compared: see ``pcshrink.export.agree``.
        suffix: How its files end, for example ".onnx".
        check: Raises ConfigError, with what to install, where it cannot be written.
        describes: Whether ``write`` also takes ``preprocessing`` and keeps it in the file.
        description: One line.
    """

    name: str
    write: Callable[..., ExportReport]
    suffix: str
    check: Callable[[], None] = _no_demands
    describes: bool = False
    description: str = ""

    @classmethod
    def of(cls, name: str, thing: object) -> ExportFormat:
        """A format as it is, or one made of a ``write`` function, with the name as its suffix.

        Raises:
            ConfigError: It is neither.
        """
        suffix = f".{name.rpartition(':')[2]}"
        form = "(model, example_input, path, *, batch) -> ExportReport"
        return entry_of(
            cls,
            f"export format {name!r}",
            thing,
            form=form,
            make=lambda write: cls(name=name, write=write, suffix=suffix),
        )


EXPORT_FORMATS = Registry(
    "export format",
    {
        "onnx": "pcshrink.export.onnx:ONNX",
        "pt2": "pcshrink.export.pt2:PT2",
        "openvino": "pcshrink.export.openvino:OPENVINO",
    },
    ExportFormat.of,
)
