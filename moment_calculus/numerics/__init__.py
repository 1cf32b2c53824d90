"""Numerical functions for arrays of any framework."""

from moment_calculus.numerics import private_apis
from moment_calculus.numerics.arrays import (
    constants,
    diagonal_matrix,
    row_sums,
    squared,
    standard_deviation,
    to_numpy,
)
from moment_calculus.numerics.execution import is_on_host
from moment_calculus.numerics.one_thread import one_thread_at_a_time

__all__ = ["constants", "diagonal_matrix", "is_on_host", "one_thread_at_a_time"]
__all__ += ["private_apis", "row_sums", "squared", "standard_deviation", "to_numpy"]
