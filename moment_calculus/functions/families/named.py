"""Named smooth functions, given by f, f′ and knots; quadrature integrates them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moment_calculus.functions.base import Array, inverse_at
from moment_calculus.functions.families.smooth_rectifier import SmoothRectifier
from moment_calculus.functions.pairs.gated import LOGISTIC_GATE
from moment_calculus.functions.pairs.mixture import LOGISTIC
from moment_calculus.functions.series.softplus_mean import expected_softplus
from moment_calculus.functions.smooth import Smooth
from moment_calculus.numerics.normal.bivariate import is_single_precision
from moment_calculus.numerics.special import expit, namespace, safe_scale


def log_1p_exp(x: Array) -> Array:
    """Return log(1 + eˣ), without overflow."""
    xp = namespace(x)
    return xp.clip(x, min=0.0) + xp.log1p(xp.exp(-xp.abs(x)))


@dataclass(frozen=True)
class Mish(SmoothRectifier):
    """The function x tanh(softplus(x))."""

    name = "mish"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x * namespace(x).tanh(log_1p_exp(x))

    def derivative(self, x: Array) -> Array:
        """Return T + x S(x) (1 − T²) with T = tanh(softplus(x))."""
        gate = namespace(x).tanh(log_1p_exp(x))
        return gate + x * expit(x) * (1 - gate * gate)


@dataclass(frozen=True)
class Softsign(Smooth):
    """The function x / (1 + |x|)."""

    name = "softsign"
    bounds = (-1.0, 1.0)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x / (1 + namespace(x).abs(x))

    def derivative(self, x: Array) -> Array:
        """Return 1 / (1 + |x|)²."""
        return (1 + namespace(x).abs(x)) ** -2.0


@dataclass(frozen=True)
class Hardswish(Smooth):
    """The function x · clip(x + 3, 0, 6) / 6."""

    name = "hardswish"
    knots = (-3.0, 3.0)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x * namespace(x).clip(x + 3, min=0.0, max=6.0) / 6

    def derivative(self, x: Array) -> Array:
        """Return (2x + 3) / 6 between −3 and 3; 0 below, 1 above."""
        xp = namespace(x)
        outside = xp.where(x > 0, xp.ones_like(x), xp.zeros_like(x))
        return xp.where(xp.abs(x) < 3, (2 * x + 3) / 6, outside)


@dataclass(frozen=True)
class Tanhshrink(Smooth):
    """The function x − tanh x."""

    name = "tanhshrink"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x - namespace(x).tanh(x)

    def derivative(self, x: Array) -> Array:
        """Return tanh² x."""
        return namespace(x).tanh(x) ** 2


@dataclass(frozen=True)
class Softplus(SmoothRectifier):
    """The function log(1 + eˣ)."""

    name = "softplus"
    width = 2.4
    bounds = (0.0, float("inf"))
    open_ended = True

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return log_1p_exp(x)

    def expectation(self, mean: Array, variance: Array) -> Array:
        """Return the mean, with the logistic function as a mixture of normal ones."""
        return expected_softplus(mean, variance)[0]

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return the inverse log(eʸ − 1), and its derivative."""
        return inverse_at(
            level,
            self.bounds,
            lambda xp, y: y + xp.log(-xp.expm1(-y)),
            lambda xp, y: -1 / xp.expm1(-y),
        )

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients; in single precision by a mixture of normal functions."""
        if not is_single_precision(mean):
            return super().hermite(mean, variance, order)
        gates = LOGISTIC.coefficients(mean, variance, order - 1)
        scale = safe_scale(variance)
        return [scale * gate / n**0.5 for n, gate in enumerate(gates, start=1)]

    def derivative(self, x: Array) -> Array:
        """Return the logistic function."""
        return expit(x)


@dataclass(frozen=True)
class SiLU(SmoothRectifier):
    """The function x S(x) with the logistic function S, also known as swish."""

    name = "silu"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x * expit(x)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients; in single precision by a mixture of normal functions."""
        compute = LOGISTIC_GATE.hermite if is_single_precision(mean) else super().hermite
        return compute(mean, variance, order)

    def derivative(self, x: Array) -> Array:
        """Return S (1 + x (1 − S))."""
        gate = expit(x)
        return gate * (1 + x * expit(-x))
