"""pcshrink: smaller and faster PyTorch networks by Progressive Channel-Shrinking."""

from pcshrink.artifact import load, save
from pcshrink.errors import ShrinkError
from pcshrink.export import export_onnx
from pcshrink.measure import profile
from pcshrink.measure.latency import latency
from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.proof.compact import compact
from pcshrink.proof.verify import verify
from pcshrink.shrinker import Shrinker, attach_, detach_
from pcshrink.surgery.fold import fold
from pcshrink.surgery.plan import PrunePlan

__version__ = "0.1.0"

__all__ = [
    "PrunePlan",
    "ShrinkConfig",
    "ShrinkError",
    "Shrinker",
    "attach_",
    "compact",
    "detach_",
    "export_onnx",
    "fold",
    "latency",
    "load",
    "profile",
    "save",
    "verify",
]
