"""What a network costs: multiply-adds, memory access and parameters."""

from pcshrink.profile.cost import profile
from pcshrink.profile.result import LayerCost, Profile

__all__ = ["LayerCost", "Profile", "profile"]
