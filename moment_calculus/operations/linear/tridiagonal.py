"""Weights with correlated neighbours, in the order of a chain through the matrix.

The covariance of a chain is tridiagonal; what it adds to the outputs of a map follows from
the links of a matrix that the chain fills, see links.py. Source: Posch and Pilz 2020
(posterior).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from moment_calculus.numerics.arrays import Array, device, diagonal_matrix, namespace
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.operations.linear.links import Link, Linked, neighbours, off_diagonal
from moment_calculus.values import Gaussian, Spread, Ties
from moment_calculus.values.gaussian import Root
from moment_calculus.values.lags import remaining
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.protocols import KnowsLags
from moment_calculus.values.spread import all_elements
from moment_calculus.values.step import Added


@dataclass(frozen=True, eq=False)
class _TridiagonalStep(Root, KnowsLags, Linked):
    """Step of a latent vector with a tridiagonal covariance."""

    between: Array = None  # covariance of each element with the next one, [..., n − 1]

    def own(self, value: Gaussian) -> Added:
        """Return the tridiagonal covariance, which is not formed."""
        variance = value.variance
        return Added(variance, lambda c: c * variance + neighbours(c, self.between, 1))

    def links(self, value: Gaussian, shape: tuple[int, ...]) -> tuple[Link, ...] | None:
        """Return the links of a matrix made of one chain, or of one whose rows are chains."""
        if len(value.shape) == 1:
            return _row_by_row(self.between, shape)
        return (Link((0, 1), self.between),) if value.shape == shape else None

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array:
        """Return the covariance of neighbours; zeros for every other offset."""
        *batch, step = offset
        if abs(step) == 1 and not any(batch):
            return self.between
        like = self.between
        return namespace(like).zeros(
            remaining(value.shape, offset), dtype=like.dtype, device=device(like)
        )


def tridiagonal_site(
    name: str, mean: Array, variance: Array, between: Array, propagation: Propagation
) -> Gaussian:
    """Make the value of a latent vector [..., n] with a tridiagonal covariance.

    It is exact in diagonal mode too, as that of a softmax, and so are its maps by certain
    matrices. Layers with weights along the chain ignore a part of it in diagonal mode:
    see linear/maps.py.
    """
    if mean.shape[-1] < 2:
        return site_value(name, mean, variance, propagation, event_dim=1)

    # The covariance matrix is formed only if it is needed.
    def covariance() -> Array:
        above = off_diagonal(between, 1)
        return diagonal_matrix(variance) + above + above.mT

    return Gaussian(
        mean,
        Spread(variance, covariance),
        _TridiagonalStep(between=between),
        support=all_elements([name]),
        ties=Ties.FEATURES,
        propagation=propagation,
    )


def _row_by_row(between: Array, shape: tuple[int, ...]) -> tuple[Link, ...]:
    """Return the links of a matrix whose rows a chain fills one after the other."""
    xp = namespace(between)
    end = xp.zeros((1,), dtype=between.dtype, device=device(between))
    grid = xp.reshape(xp.concat([between, end]), shape)
    along, across = grid[:, :-1], grid[:-1, -1:]
    links = Link((0, 1), along), Link((1, 1 - shape[-1]), across)
    return tuple(link for link in links if math.prod(link.covariances.shape))
