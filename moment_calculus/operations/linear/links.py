"""Weights that are correlated with others an offset away, and what they add to a map.

For an offset (a, b) a *link* of a matrix holds the covariances of its weights (i, j) and
(i + a, j + b). Row by row along a chain these are (0, 1), and (1, −(n − 1)) from the last
weight of a row to the first of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from moment_calculus.numerics.arrays import Array, device, diagonal_matrix, namespace, positive_part
from moment_calculus.operations.shapes.moves import Converted, Permuted
from moment_calculus.operations.shapes.reshaping import Reshaped
from moment_calculus.values import Gaussian, Step
from moment_calculus.values.lags import shifted
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


class Linked(Step):
    """Step of a latent value whose components are correlated with others an offset away."""

    def links(self, value: Gaussian, shape: tuple[int, ...]) -> tuple[Link, ...] | None:
        """Return the links of a matrix that the components fill row by row; None if unknown."""
        raise NotImplementedError


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
    root = step.source if isinstance(step, Reshaped) else weight
    if isinstance(root.step, Linked):
        return root.step.links(root, weight.shape)
    if not (isinstance(step, Permuted | Converted) or step.affine is not None):
        return None
    result = links_of(step.inputs[0])
    return None if result is None else tuple(_link_of_result(link, weight) for link in result)


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
