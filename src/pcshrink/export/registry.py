"""The export formats by name, and what each of them says about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pcshrink.common.registry import Registry
from pcshrink.errors import ConfigError

if TYPE_CHECKING:
    from pcshrink.export.agree import ExportReport


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """A kind of file that models are written to.

    Attributes:
        name: What it is called on the command line.
        write: ``write(model, example_input, path, *, batch)`` writes the file and reports on it. It leaves the model
            alone and gives the file its name only once its outputs were compared: see ``pcshrink.export.agree``.
        suffix: How its files end, for example ".onnx".
        describes: Whether ``write`` also takes ``preprocessing`` and keeps it in the file.
        description: One line.
    """

    name: str
    write: Callable[..., ExportReport]
    suffix: str
    describes: bool = False
    description: str = ""

    @classmethod
    def of(cls, name: str, thing: Any) -> ExportFormat:
        """A format as it is, or one made of a ``write`` function, with the name as its suffix.

        Raises:
            ConfigError: It is neither.
        """
        if isinstance(thing, ExportFormat):
            return thing
        if not callable(thing):
            message = (
                f"the export format {name!r} must be an ExportFormat or a function (model, example_input, path, *, "
                f"batch) -> ExportReport, got {type(thing).__name__}"
            )
            raise ConfigError(message)
        return cls(name=name, write=thing, suffix=f".{name.rpartition(':')[2]}")


EXPORT_FORMATS = Registry(
    "export format",
    {
        "onnx": "pcshrink.export.onnx:ONNX",
        "pt2": "pcshrink.export.pt2:PT2",
        "openvino": "pcshrink.export.openvino:OPENVINO",
    },
    ExportFormat.of,
)
