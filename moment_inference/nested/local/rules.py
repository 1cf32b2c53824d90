"""Nodes and weights for expectations under standard Gaussians."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

TENSOR = 2  # most dimensions of a border whose rule is a product
AXIS = 5  # nodes in a dimension of a border
NEAR = slice(1, 4)  # of them, that a rule with fewer nodes has


@dataclass(frozen=True, eq=False)
class Inner:
    """Gauss and Hermite's nodes [t, k], with log weights, of a Gaussian wider by a factor."""

    nodes: np.ndarray  # on the scale of the Gaussian that is not widened
    logs: np.ndarray

    @classmethod
    def of(cls, size: int, count: int, widened: float) -> Inner:
        """Return the product rule of some nodes in each dimension."""
        nodes, weights = _hermite(count)
        logs = np.log(weights) + np.log(widened) + nodes**2 * (1 - widened**2) / 2
        grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), -1).reshape(-1, size)
        total = sum(np.meshgrid(*[logs] * size, indexing="ij"), np.zeros([count] * size))
        return cls(widened * grid, total.ravel())


@dataclass(frozen=True, eq=False)
class Outer:
    """A rule for log E exp R(t) and moments, t standard Gaussian in p dimensions.

    Up to two dimensions it is a product. Beyond, R is taken as a sum of functions of one
    coordinate, whose expectations multiply: 4p + 1 nodes, with positive weights.

    Attributes:
        nodes: [b, p]; the first is zero.
        parts: nodes of each part that is integrated on its own, with their weights.
        fewer: the same of a rule with fewer nodes.
        pairs: nodes that show what the sum leaves out, with the nodes on axes that make it up.
    """

    nodes: np.ndarray
    parts: list[tuple[np.ndarray, np.ndarray]]
    fewer: list[tuple[np.ndarray, np.ndarray]]
    pairs: list[tuple[int, np.ndarray]]

    @classmethod
    def of(cls, size: int) -> Outer:
        """Return the rule of p dimensions."""
        return _product(size) if size <= TENSOR else _on_axes(size)

    def log_mean(self, logs: np.ndarray) -> np.ndarray:
        """Return log E exp R of values [g, b]."""
        return self._sum(self.parts, logs)

    def error(self, logs: np.ndarray) -> np.ndarray:
        """Return about how far the same is off, [g]: by fewer nodes, and by pairs."""
        found = np.abs(self.log_mean(logs) - self._sum(self.fewer, logs))
        for node, on_axes in self.pairs:
            left = logs[:, node] - logs[:, 0] - (logs[:, on_axes] - logs[:, :1]).sum(1)
            found += left**2 / 2 / len(self.pairs)
        return found

    def _sum(self, parts: list[tuple[np.ndarray, np.ndarray]], logs: np.ndarray) -> np.ndarray:
        centre = logs[:, :1]
        each = [logsumexp(logs[:, at] - centre, axis=1, b=weights) for at, weights in parts]
        return sum(each, centre[:, 0])

    def moments(
        self, logs: np.ndarray, mean: np.ndarray, variance: np.ndarray, third: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return moments [g, m] by those given each node [g, b, m]: total cumulances."""
        means, variances, thirds = mean[:, 0], variance[:, 0], third[:, 0]
        for at, weights in self.parts:
            part = logs[:, at] + np.log(weights)
            shares = np.exp(part - logsumexp(part, axis=1, keepdims=True))
            over = lambda values, shares=shares: np.einsum("gb,gbm->gm", shares, values)  # noqa: E731
            own, spread = over(mean[:, at]), variance[:, at]
            centred = mean[:, at] - own[:, None]
            square = centred * centred
            means = means + own - mean[:, 0]
            variances = variances + over(spread) - variance[:, 0] + over(square)
            thirds = thirds + over(third[:, at]) - third[:, 0]
            thirds = thirds + over(centred * (square + 3 * spread))
        return means, variances, thirds


def _hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def _near() -> tuple[np.ndarray, np.ndarray]:
    """Return the inner three nodes of an axis with the weights that suit them."""
    nodes = _hermite(AXIS)[0][NEAR]
    outer = 1 / (2 * nodes[-1] ** 2)
    return nodes, np.array([outer, 1 - 2 * outer, outer])


def _product(size: int) -> Outer:
    nodes, weights = _hermite(AXIS)
    indices = np.stack(np.meshgrid(*[np.arange(AXIS)] * size, indexing="ij"), -1)
    indices = indices.reshape(-1, size)
    indices = indices[np.argsort(np.abs(indices - AXIS // 2).sum(1), kind="stable")]
    is_near = ((indices >= NEAR.start) & (indices < NEAR.stop)).all(1)
    near = _near()[1][indices[is_near] - NEAR.start].prod(1)
    parts = [(np.arange(len(indices)), weights[indices].prod(1))]
    return Outer(nodes[indices], parts, [(np.flatnonzero(is_near), near)], [])


def _on_axes(size: int) -> Outer:
    axis, weights = _hermite(AXIS)
    off = axis[axis != 0]
    nodes = [np.zeros((1, size)), *(off[:, None] * row for row in np.eye(size))]
    starts = 1 + len(off) * np.arange(size)
    first, last = len(off) // 2 - 1, len(off) // 2  # the nodes of an axis next to the centre
    parts, fewer = [], []
    for start in starts:
        at = np.r_[start : start + last, 0, start + last : start + len(off)]
        parts.append((at, weights))
        fewer.append((at[NEAR], _near()[1]))
    pairs, count = [], 1 + len(off) * size
    for signs in (np.ones(size, int), (-1) ** np.arange(size)):
        for turned in (signs, -signs):
            on_axes = starts + np.where(turned > 0, last, first)
            nodes.append(off[last] * turned[None].astype(float))
            pairs.append((count + len(pairs), on_axes))
    return Outer(np.concatenate(nodes), parts, fewer, pairs)
