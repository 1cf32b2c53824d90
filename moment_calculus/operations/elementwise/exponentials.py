"""Exponentials of sums, which are products of exponentials of the terms."""

from __future__ import annotations

from functools import reduce

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.drivers import affine_relation
from moment_calculus.operations.elementwise.sums import add, terms_of
from moment_calculus.operations.elementwise.unary import apply, exponential_parts, scale_shift
from moment_calculus.operations.shapes.reshaping import narrow
from moment_calculus.values import Deferred, Value
from moment_calculus.values.spread import overlap


def exponential_apart(value: Value, other: Value) -> tuple[Value, Value] | None:
    """Return c e^{u+v} as c e^u and e^v, for another function of v alone; None for other values.

    Then e^v times that function is one function of v, and independent of e^u.
    """
    parts = exponential_parts(value)
    if parts is None or not isinstance(other, Deferred) or not overlap(value, other):
        return None
    exponent, rate, factor = parts
    terms = terms_of(exponent)
    free: list[Value] = [term for term in terms if not overlap(term, other)]
    if len(terms) != len(free) + 1 or not free:
        return None
    (shared,) = (term for term in terms if overlap(term, other))
    if (relation := affine_relation(narrow(other.base), shared)) is None:
        return None
    scale, shift = (rate * part for part in relation)
    exponential = activation("exp")
    of_free = apply(exponential, scale_shift(reduce(add, free), rate).gaussian())
    return scale_shift(of_free, factor), apply(exponential, scale_shift(other.base, scale, shift))
