"""What can go wrong, each as its own class; every one is also the builtin a caller would expect."""


class ShrinkError(Exception):
    """Base of every error pcshrink raises on purpose."""


class ConfigError(ShrinkError, ValueError):
    """A setting is unknown, of the wrong type or out of range."""


class OutOfReachError(ConfigError):
    """A budget that no choice of widths can meet."""


class TraceError(ShrinkError, RuntimeError):
    """The model could not be run or recorded with the given example input."""


class NoSitesError(ShrinkError, ValueError):
    """Nothing in the model can shrink, or a pattern matches nothing."""


class SalienceError(ShrinkError, RuntimeError):
    """The penalty was asked for without a usable forward pass."""


class EmptyPlanError(ShrinkError, RuntimeError):
    """A plan was asked for, but nothing would leave."""


class PlanMismatchError(ShrinkError, ValueError):
    """A plan does not belong to the model it is applied to."""


class VerificationError(ShrinkError, RuntimeError):
    """Two models that must agree do not."""


class CheckpointError(ShrinkError, ValueError):
    """A file on disk is missing, damaged, hostile, from another version, or cannot be written."""


class DataError(ShrinkError, ValueError):
    """A data set is missing, damaged or not laid out as expected."""


class ShrinkWarning(UserWarning):
    """Something worth knowing that does not make a result wrong."""
