"""Shape operations: indexing, concatenation, reshapes, permutations, padding, conversion."""

from moment_calculus.operations.shapes.moves import converted, move_axis, permute, swap_last
from moment_calculus.operations.shapes.reshaping import broadcast, reshape
from moment_calculus.values.spread import broadcast_shape

__all__ = [
    "broadcast",
    "broadcast_shape",
    "converted",
    "move_axis",
    "permute",
    "reshape",
    "swap_last",
]
