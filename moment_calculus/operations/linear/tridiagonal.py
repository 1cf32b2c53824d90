"""Weights with correlated neighbours, in the order of a chain through the matrix.

The covariance of a chain is tridiagonal. A matrix made of one has *links*: for an offset
(a, b) the covariances of the weights (i, j) and (i + a, j + b). Row by row these are (0,
1), and (1, −(n − 1)) from the last weight of a row to the first of the next. Source:
Posch and Pilz 2020 (posterior).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from moment_calculus.numerics.arrays import Array, device, diagonal_matrix, namespace, positive_part
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.operations.shapes.moves import Converted, Permuted
from moment_calculus.operations.shapes.reshaping import Reshaped
from moment_calculus.values import Gaussian, Spread, Ties
from moment_calculus.values.gaussian import Root
from moment_calculus.values.lags import remaining, shifted
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.protocols import KnowsLags
from moment_calculus.values.spread import all_elements
from moment_calculus.values.step import Added


class Link(NamedTuple):
    """Covariances of the weights of a matrix with the weights an offset away."""

    offset: tuple[int, int]  # along both axes; the first one is not negative
    covariances: Array  # for all places at which both weights exist

    @classmethod
    def of(cls, offset: Sequence[int], covariances: Array) -> Link:
        """Make a link whose first offset is not negative; the pairs of weights are the same."""
        first, second = offset
        return cls((-first, -second) if first < 0 else (first, second), covariances)

    def contribution(self, x: Any) -> Array:
        """Return Σ_j k_ij E[x_j x_{j + b}], added to the covariance of outputs i and i + a."""
        return _second_moments(x, self.offset[1]) @ self.covariances.mT


@dataclass(frozen=True, eq=False)
class _TridiagonalStep(Root, KnowsLags):
    """Step of a latent vector with a tridiagonal covariance."""

    between: Array = None  # covariance of each element with the next one, [..., n − 1]

    def own(self, value: Gaussian) -> Added:
        """Return the tridiagonal covariance, which is not formed."""
        variance = value.variance
        return Added(variance, lambda c: c * variance + neighbours(c, self.between, 1))

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


def neighbours(vector: Array, line: Array, offset: int) -> Array:
    """Return M x for a symmetric M with a line [..., n − a] off its diagonal, x [..., n]."""
    xp = namespace(vector)
    after, before = line * vector[..., offset:], line * vector[..., :-offset]
    gap = xp.zeros_like(after[..., :1] if offset == 1 else vector[..., :offset] * line[..., :1])
    return xp.concat([after, gap], axis=-1) + xp.concat([gap, before], axis=-1)


def off_diagonal(line: Array, offset: int) -> Array:
    """Put a line [..., n − a] above the diagonal of square matrices [..., n, n]."""
    xp, square = namespace(line), diagonal_matrix(line)
    lead, size = tuple(line.shape[:-1]), line.shape[-1]
    made = {"dtype": line.dtype, "device": device(line)}
    tall = xp.concat([square, xp.zeros((*lead, offset, size), **made)], axis=-2)
    return xp.concat([xp.zeros((*lead, size + offset, offset), **made), tall], axis=-1)


def links_of(weight: Any) -> tuple[Link, ...] | None:
    """Return the links of a matrix made of a chain; None for values made in any other way."""
    if not isinstance(weight, Gaussian) or weight.mean.ndim != 2:
        return None
    arrays = weight.memo.arrays
    if links_of not in arrays:
        arrays[links_of] = None if weight.independent else _links(weight)
    return arrays[links_of]


def _links(weight: Gaussian) -> tuple[Link, ...] | None:
    step = weight.step
    if isinstance(step, _TridiagonalStep):  # every row is a chain, as in a plate of chains
        return (Link((0, 1), step.between),)
    if isinstance(step, Reshaped):
        return _of_rows(step.source, weight.shape)
    if not (isinstance(step, Permuted | Converted) or step.affine is not None):
        return None
    result = links_of(step.inputs[0])
    return None if result is None else tuple(_link_of_result(link, weight) for link in result)


def _of_rows(vector: Gaussian, shape: tuple[int, ...]) -> tuple[Link, ...] | None:
    """Return the links of a chain that fills the rows of a matrix."""
    if not isinstance(vector.step, _TridiagonalStep) or len(vector.shape) != 1:
        return None  # a batch of chains
    between, columns = vector.step.between, shape[-1]
    xp = namespace(between)
    end = xp.zeros((1,), dtype=between.dtype, device=device(between))
    grid = xp.reshape(xp.concat([between, end]), shape)
    along, across = grid[:, :-1], grid[:-1, -1:]
    links = Link((0, 1), along), Link((1, 1 - columns), across)
    return tuple(link for link in links if math.prod(link.covariances.shape))


def _link_of_result(link: Link, weight: Gaussian) -> Link:
    """Turn a link of the matrix that a step was applied to into a link of its result."""
    step, (offset, covariances) = weight.step, link
    if isinstance(step, Permuted):
        return Link.of([offset[axis] for axis in step.order], step.move(covariances))
    if isinstance(step, Converted):
        return Link(offset, step.move(covariances))
    assert step.affine is not None
    scale = step.affine[1]
    if isinstance(scale, int | float):
        return Link(offset, covariances * (scale * scale))
    left, right = shifted(namespace(scale).broadcast_to(scale, weight.shape), offset)
    return Link(offset, covariances * left * right)


class AddedCovariance(NamedTuple):
    """The covariance that random weights and biases add to the outputs of a map."""

    variance: Any  # added to each output, [..., out], or None
    # Pairs of a and the covariances of the outputs i and i + a, [..., out − a].
    off_diagonals: tuple[tuple[int, Array], ...] = ()

    def with_links(self, links: Sequence[Link], x: Any) -> AddedCovariance:
        """Add the contribution of the links of the weight for inputs x [..., in]."""
        variance, lines = self.variance, list(self.off_diagonals)
        for link in links:
            part, distance = link.contribution(x), link.offset[0]
            if distance:
                lines.append((distance, part))
            else:
                variance = positive_part(variance + 2 * part)  # rounding near ρ = −½
        return AddedCovariance(variance, tuple(lines))

    def as_added(self) -> Added:
        """Return the covariance for cotangents of the outputs, where there is one."""
        return Added(self.variance, self._times if self.off_diagonals else None)

    def _times(self, cotangent: Array) -> Array:
        image = cotangent * self.variance
        for distance, line in self.off_diagonals:
            image = image + neighbours(cotangent, line, distance)
        return image

    def add_to(self, covariance: Array | None) -> Array:
        """Return the covariance [..., out, out] of the outputs; ``covariance`` is from inputs."""
        parts = [] if covariance is None else [covariance]
        if self.variance is not None:
            parts.append(diagonal_matrix(self.variance))
        for distance, line in self.off_diagonals:
            above = off_diagonal(line, distance)
            parts.append(above + above.mT)
        return sum(parts[1:], parts[0])


def _second_moments(x: Any, offset: int) -> Array:
    """Return E[x_j x_{j + b}] for all j for which both components exist."""
    mean = x.mean if isinstance(x, Gaussian) else x
    left, right = shifted(mean, (*(0 for _ in mean.shape[:-1]), offset))
    products = left * right
    if not isinstance(x, Gaussian):
        return products
    if not offset:
        return products + x.variance
    if not x.has_covariance:
        return products
    return products + namespace(mean).linalg.diagonal(x.covariance, offset=offset)
