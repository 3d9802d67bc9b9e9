"""Tiny networks, one for each graph pattern, with the groups they must have and the layers that must stay.

``CASES`` is the table: name -> how to build the net, the shapes of its inputs, the groups (the writers of a
group joined by ``+``, groups separated by spaces) and the refusals (layer -> a piece of the reason).
"""

from testing.nets import attending, channelwise, ends, meeting, slicing, straight  # noqa: F401 - they fill the table
from testing.nets.case import CASES, Case
from testing.nets.settle import randomise_, settle_norms_

__all__ = ["CASES", "Case", "randomise_", "settle_norms_"]
