"""Models for other runtimes, each compared with the model it came from before its file gets its name.

Writing only: what runs models is in ``runtime``. Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pcshrink.common.lazy import lazy_names

if TYPE_CHECKING:
    from pcshrink.export.agree import ExportReport
    from pcshrink.export.onnx import export_onnx
    from pcshrink.export.openvino import export_openvino
    from pcshrink.export.pt2 import export_pt2
    from pcshrink.export.registry import EXPORT_FORMATS, ExportFormat

__all__ = ["EXPORT_FORMATS", "ExportFormat", "ExportReport", "export_onnx", "export_openvino", "export_pt2"]

_HOMES = {
    "EXPORT_FORMATS": "registry",
    "ExportFormat": "registry",
    "ExportReport": "agree",
    "export_onnx": "onnx",
    "export_openvino": "openvino",
    "export_pt2": "pt2",
}

__getattr__ = lazy_names(__name__, _HOMES)
