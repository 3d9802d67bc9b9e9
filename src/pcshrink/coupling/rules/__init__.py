"""One small rule for each operation: what it does to the channels of its inputs."""

from pcshrink.coupling.rules import core, heads, layout, norms, pointwise, spatial, splits, whole  # noqa: F401 - they register
