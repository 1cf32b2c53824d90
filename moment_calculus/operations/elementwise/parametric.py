"""Elementwise functions with certain arrays as parameters, made of known functions."""

from __future__ import annotations

from typing import Any

from moment_calculus.functions.table import ReLU
from moment_calculus.numerics.arrays import Array
from moment_calculus.operations.elementwise.arithmetic import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.values import Value


def prelu(value: Value, slope: Array) -> Value:
    """Return x for x > 0, else slope · x, exactly, as slope · x + (1 − slope) · relu(x)."""
    return add(scale_shift(value, slope), scale_shift(apply(ReLU(), value), 1 - slope))


def at_least(value: Value, low: Any) -> Value:
    """Return the larger of x and a certain, broadcastable array: low + relu(x − low)."""
    return scale_shift(apply(ReLU(), scale_shift(value, 1.0, -low)), 1.0, low)


def at_most(value: Value, high: Any) -> Value:
    """Return the smaller of x and a certain, broadcastable array: high − relu(high − x)."""
    return scale_shift(apply(ReLU(), scale_shift(value, -1.0, high)), -1.0, high)
