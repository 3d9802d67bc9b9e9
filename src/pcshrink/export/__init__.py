"""Models for other runtimes, each compared with the model it came from before its file gets its name."""

from pcshrink.export.agree import ExportReport
from pcshrink.export.onnx import export_onnx
from pcshrink.export.openvino import export_openvino
from pcshrink.export.pt2 import export_pt2

__all__ = ["ExportReport", "export_onnx", "export_openvino", "export_pt2"]
