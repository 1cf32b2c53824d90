"""Operands of several covariances: a factor of a product, and its squared deviation."""

from __future__ import annotations

from moment_calculus.functions.integrated import Integrated
from moment_calculus.functions.pairs.mehler import Operand
from moment_calculus.numerics.arrays import Array


class RememberedOperand(Operand):
    """An operand of several covariances, whose coefficients are computed once."""

    def hermite(self, order: int) -> Array:
        """Return the Hermite coefficients, [order, ..., d]."""
        if order not in self.__dict__:
            self.__dict__[order] = super().hermite(order)
        return self.__dict__[order]


def squared_deviation(operand: Operand, centre: Array) -> Operand:
    """Return (f(x) − E f)² of f(x)."""
    function = operand.activation
    square = Integrated(lambda x: (function(x) - centre) ** 2, getattr(function, "knots", (0.0,)))
    return RememberedOperand(square, operand.mean, operand.variance)
