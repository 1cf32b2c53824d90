"""The indicator of a class that is drawn with random probabilities.

Given its probabilities p, the indicator y is independent of all else, so that E[y] = E[p],
Cov[y] = diag(E[p]) − E[p] E[p]ᵀ, and every covariance with another value is that of p.
Source: Shekhovtsov et al. 2018, section C.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import (
    Array,
    diagonal,
    identity_like,
    namespace,
    outer,
    squared,
    times_rows,
)
from moment_calculus.operations.dropout.noise import Noise, noise_name, switch
from moment_calculus.operations.elementwise.stated import Stated
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.operations.normalised.normalisation import trailing_features
from moment_calculus.operations.normalised.softmax import softmax_jacobian
from moment_calculus.values import Gaussian, Spread
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import Ties, all_elements
from moment_calculus.values.step import Added


def one_hot(probabilities: Any, propagation: Propagation) -> Gaussian:
    """Return the indicator [..., classes] of a class that is drawn with some probabilities."""
    if not is_value(probabilities):
        joint = softmax_jacobian(probabilities)
        return Gaussian(
            probabilities,
            Spread(diagonal(joint), joint),
            Noise(),
            support=all_elements([noise_name("class")]),
            propagation=propagation,
        )
    source = trailing_features(probabilities, "a draw of a class")
    covariance, total = source.joint_covariance(), softmax_jacobian(source.mean)
    factor = _factor(covariance, source.mean)
    rest = total - squared(factor)[..., None] * covariance
    step = OneHot(source, namespace(factor).broadcast_to(factor, source.shape), rest)
    return switch(
        Gaussian(
            source.mean,
            Spread(diagonal(total), total),
            step,
            ties=max(source.ties, Ties.FEATURES),
            propagation=source.propagation,
        )
    )


def _factor(covariance: Array, mean: Array) -> Array:
    """Return [..., 1] factors, at most 1, of probabilities whose products stay positive.

    The products of two probabilities are then on average not negative, as they should be, so that
    E[diag(p) − p pᵀ] is the Laplacian of a graph, positive semi-definite.
    """
    xp, products = namespace(mean), outer(mean, mean)
    apart = (products > 0) & (identity_like(mean) == 0)
    one = xp.ones_like(products)
    excess = xp.where(apart, -covariance, one) / xp.where(apart, products, one)
    largest = xp.max(xp.max(excess, axis=-1), axis=-1)[..., None]
    return xp.clip(largest, min=1.0) ** -0.5


@dataclass(frozen=True, eq=False)
class OneHot(Stated):
    """Step of a class that is drawn with the probabilities of the source."""

    componentwise = False

    def own(self, value: Gaussian) -> Added:
        """Return the covariance of the draw, given the probabilities times their factor."""
        return Added(diagonal(self.rest), lambda rows: times_rows(self.rest, rows))

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        """Return the axis itself, but not that of the classes."""
        return axis if axis != value.axis else None
