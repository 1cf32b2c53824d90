"""Elementwise functions with certain arrays for parameters: each a sum or chain of known ones."""

from __future__ import annotations

from typing import Any

from moment_calculus.functions.table import ReLU
from moment_calculus.numerics.arrays import Array
from moment_calculus.operations.elementwise.arithmetic import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.values import Value


def prelu(value: Value, slope: Array) -> Value:
    """x for x > 0, else slope · x: the sum slope · x + (1 − slope) · relu(x), exactly.

    Args:
        value: x.
        slope: broadcastable with x; gradients flow to it.
    """
    return add(scale_shift(value, slope), scale_shift(apply(ReLU(), value), 1 - slope))


def at_least(value: Value, low: Any) -> Value:
    """The larger of x and a certain array: low + relu(x − low).

    Args:
        value: x.
        low: broadcastable with x.
    """
    return scale_shift(apply(ReLU(), scale_shift(value, 1.0, -low)), 1.0, low)


def at_most(value: Value, high: Any) -> Value:
    """The smaller of x and a certain array: high − relu(high − x).

    Args:
        value: x.
        high: broadcastable with x.
    """
    return scale_shift(apply(ReLU(), scale_shift(value, -1.0, high)), -1.0, high)
