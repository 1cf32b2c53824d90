"""Nodes and weights for expectations under standard Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

AXIS = {
    0: 1,
    1: 7,
    2: 5,
}  # nodes in a dimension of a border whose rule is a product, by their number


@dataclass(frozen=True, eq=False)
class Rule:
    """Nodes [b, p], the first of them zero, with weights [b], for E f(t) of a standard Gaussian t.

    Attributes:
        fewer: weights of a coarser rule at the same nodes, of which it leaves some out.
    """

    nodes: np.ndarray
    weights: np.ndarray
    fewer: np.ndarray

    def log_mean(self, logs: np.ndarray) -> np.ndarray:
        """Return log E exp R of values [g, b]; nan where R varies more than the rule can follow."""
        return _log_mean(logs, self.weights)

    def error(self, logs: np.ndarray) -> np.ndarray:
        """Return what the coarser rule finds differently, [g]: more than the rule is off."""
        difference = np.abs(self.log_mean(logs) - _log_mean(logs, self.fewer))
        return np.where(np.isfinite(difference), difference, np.inf)

    def moments(
        self, logs: np.ndarray, mean: np.ndarray, variance: np.ndarray, third: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return moments [g, m] by those given each node [g, b, m]: total cumulances."""
        shares = self.weights * np.exp(logs - self.log_mean(logs)[:, None])
        over = lambda values: np.einsum("gb,gbm->gm", shares, values)  # noqa: E731
        total = over(mean)
        centred = mean - total[:, None]
        square = centred * centred
        return (
            total,
            over(variance + square),
            over(third + centred * (square + 3 * variance)),
        )


def _log_mean(logs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    highest = logs.max(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(np.exp(logs - highest) @ weights) + highest[:, 0]


def rules_of(size: int) -> list[Rule]:
    """Return rules, the best last: one with 2p² + 4p + 1 nodes, products up to two dimensions."""
    rules = [_sparse(size)] if size > 1 else []
    return [*rules, _product(size)] if size in AXIS else rules


def product_nodes(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss and Hermite's nodes [t, k] and weights [t], some in each dimension."""
    nodes, weights = _axis(count)
    indices = _indices(size, count)
    return nodes[indices], weights[indices].prod(1)


def _axis(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss and Hermite's nodes and weights, in ascending order."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def _indices(size: int, count: int) -> np.ndarray:
    """Return the places of a product's nodes on the axes, the centre first."""
    indices = np.indices([count] * size).reshape(size, count**size).T
    return indices[np.argsort(np.abs(indices - count // 2).sum(1), kind="stable")]


def _product(size: int) -> Rule:
    """Return a product rule; the coarser one has the three nodes about the centre of each axis."""
    count = AXIS[size]
    nodes, weights = product_nodes(size, count)
    if not size:
        return Rule(nodes, weights, weights)
    axis = _axis(count)[0]
    near, outer = np.zeros(count), 1 / (2 * axis[count // 2 + 1] ** 2)
    near[count // 2 - 1 : count // 2 + 2] = outer, 1 - 2 * outer, outer
    return Rule(nodes, weights, near[_indices(size, count)].prod(1))


def _sparse(size: int) -> Rule:
    """Return products of three nodes in all pairs of dimensions, and five nodes in each dimension.

    It is exact to degree 5, and for functions of one coordinate to degree 9; so are second moments
    of cubic functions of two. The coarser rule has three nodes in each dimension. Sources: McNamee
    and Stenger 1967 (the pairs), Smolyak 1963 (sums of products).
    """
    axes = np.concatenate([np.eye(size), -np.eye(size)])
    pairs = [
        first * np.eye(size)[one] + second * np.eye(size)[other]
        for one, other in combinations(range(size), 2)
        for first in (1, -1)
        for second in (1, -1)
    ]
    axis, shares = (part[3:] for part in _axis(5))
    nodes = [np.zeros((1, size)), np.sqrt(3) * axes, np.sqrt(3) * np.array(pairs)]
    nodes += [place * axes for place in axis]
    counts = [len(part) for part in nodes]
    centre = (size**2 - 7 * size + 18) / 18 - 2 * size * (shares.sum() - 1 / 6)
    weights = [centre, (4 - size) / 18 - 1 / 6, 1 / 36, *shares]
    fewer = [1 - size / 3, 1 / 6, 0, 0, 0]
    return Rule(np.concatenate(nodes), np.repeat(weights, counts), np.repeat(fewer, counts))
