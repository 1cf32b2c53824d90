"""Any elementwise function, by quadrature: chains of activations and transforms of a Gaussian."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from moment_calculus.activations.base import Activation, Array, normal_hermite
from moment_calculus.special import constants, namespace, safe_scale

PANELS, NODES, REACH = 12, 8, 9.0


@functools.cache
def _rule() -> tuple[np.ndarray, np.ndarray]:
    """Standard normal quadrature: Gauss-Legendre on equal panels of [−9, 9]."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    edges = np.linspace(-REACH, REACH, PANELS + 1)
    half, centres = REACH / PANELS, (edges[1:] + edges[:-1]) / 2
    nodes = (centres[:, None] + half * points).ravel()
    density = np.exp(-0.5 * nodes**2) * np.tile(weights, PANELS)
    return nodes, density / density.sum()


@dataclass(frozen=True)
class Integrated(Activation):
    """An elementwise function without closed form, by 96-node quadrature over the Gaussian.

    Measured relative errors of mean and variance, |μ| ≤ 3σ: tanh(tanh(x)) 1e-13 and 2e-12 at
    σ = 0.3, 1e-8 and 2e-7 at σ = 1, 2e-4 and 3e-3 at σ = 3, 7e-3 and 7e-2 at σ = 10; where the
    function has a kink (|x|) 1e-3 and 8e-3, where it jumps 1e-2 and 8e-2.

    Args:
        function: elementwise function of an array.
    """

    function: Callable[[Array], Array]
    name = "integrated"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.function(x)

    def _values(self, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """f at the nodes on a new leading axis, with nodes and weights of that axis."""
        nodes, weights = (
            constants(part.reshape((-1,) + (1,) * len(mean.shape)), mean) for part in _rule()
        )
        return self(mean[None] + safe_scale(variance)[None] * nodes), nodes, weights

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and variance of f(x); see the class for the error."""
        values, _, weights = self._values(mean, variance)
        xp = namespace(mean)
        centre = xp.sum(weights * values, axis=0)
        return centre, xp.sum(weights * (values - centre[None]) ** 2, axis=0)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Hermite coefficients; see the class for the error."""
        values, nodes, weights = self._values(mean, variance)
        polynomials = normal_hermite(nodes, weights, order + 1)[1:]
        return [namespace(mean).sum(polynomial * values, axis=0) for polynomial in polynomials]

    def gain(self, mean: Array, variance: Array) -> Array:
        """Expected derivative; see the class for the error."""
        return self.hermite(mean, variance, 1)[0] / safe_scale(variance)
