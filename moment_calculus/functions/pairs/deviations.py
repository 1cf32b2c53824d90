"""Operands of several covariances: a factor of a product, and its squared deviation."""

from __future__ import annotations

from moment_calculus.functions.integrated import Integrated
from moment_calculus.functions.pairs.mehler import Operand
from moment_calculus.numerics.arrays import Array


class RememberedOperand(Operand):
    """An operand of several covariances, whose coefficients are computed once."""

    def hermite(self, order: int) -> Array:
        """Return the Hermite coefficients, [order, ..., d]."""
        known = self.__dict__.setdefault("coefficients", {})
        if order not in known:
            known[order] = super().hermite(order)
        return known[order]


def squared_deviation(operand: Operand, centre: Array) -> Operand:
    """Return (f(x) − E f)² of f(x)."""
    function = operand.activation
    square = Integrated(lambda x: (function(x) - centre) ** 2, getattr(function, "knots", (0.0,)))
    return RememberedOperand(square, operand.mean, operand.variance)
