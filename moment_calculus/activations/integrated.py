"""Any elementwise function, by quadrature: chains of activations and transforms of a Gaussian."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moment_calculus.activations.base import Activation, Array, normal_hermite
from moment_calculus.quadrature import steps
from moment_calculus.special import double, namespace, safe_scale, settled


@dataclass(frozen=True)
class Integrated(Activation):
    """An elementwise function without closed form, by the universal rule in double precision.

    MEASURE

    Args:
        function: elementwise function of an array.
        knots: places around which it changes, see :func:`moment_calculus.quadrature.nodes`.
    """

    function: Callable[[Array], Array]
    knots: tuple[Any, ...] = field(default=(0.0,), compare=False)
    name = "integrated"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.function(x)

    def _values(self, mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """Steps, weights, and f at the nodes, less its value at the mean, on a new leading axis."""
        xp = namespace(mean)
        mean, scale = double(mean), safe_scale(double(variance))
        z, weights = steps(mean, scale, self.knots)
        limit = math.sqrt(float(xp.finfo(mean.dtype).max)) / 1e6
        centre = xp.clip(double(self(mean)), min=-limit, max=limit)
        values = xp.clip(double(self(mean + scale * z)), min=-limit, max=limit)
        return z, weights, values - centre, centre

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and variance of f(x); see the class for the error."""
        xp = namespace(mean)
        _, weights, rise, centre = self._values(mean, variance)
        shift = xp.sum(weights * rise, axis=0)
        spread = xp.sum(weights * (rise - shift) ** 2, axis=0)
        return settled(centre + shift, mean), settled(spread, mean)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Hermite coefficients; see the class for the error."""
        z, weights, rise, _ = self._values(mean, variance)
        basis = normal_hermite(z, weights, order + 1)[1:]
        xp = namespace(mean)
        return [settled(xp.sum(polynomial * rise, axis=0), mean) for polynomial in basis]

    def gain(self, mean: Array, variance: Array) -> Array:
        """Expected derivative; see the class for the error."""
        xp = namespace(mean)
        z, weights, rise, _ = self._values(mean, variance)
        scale = safe_scale(double(variance))
        return settled(xp.sum(z * weights * rise, axis=0) / scale, mean)
