"""The operations random networks are made of.

Each is one function: it gets a ``pick`` that chooses among options, and example tensors; it returns a module or a plain
function that is then applied to the tensors, or ``None`` where the operation does not fit them.
"""

# In this order they fill the table, which the numbers of random networks refer to.
from testing.random_ops import layers, maps, parts, tokens  # noqa: F401
from testing.random_ops.table import TABLE, Operation

__all__ = ["TABLE", "Operation"]
