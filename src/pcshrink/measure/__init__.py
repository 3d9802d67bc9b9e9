"""What a network costs: multiply-adds, memory access and parameters."""

from pcshrink.measure.cost import profile
from pcshrink.measure.result import LayerCost, Profile

__all__ = ["LayerCost", "Profile", "profile"]
