"""log p(y | θ) and moments of a field by quadrature of its blocks, given its border."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from moment_inference.nested.conditional import Conditional
from moment_inference.nested.cumulant import Corrections
from moment_inference.nested.given.host import ConditionalModel
from moment_inference.nested.local.blocks import Blocks
from moment_inference.nested.local.remainder import Remainder
from moment_inference.nested.local.rules import Rule, product_nodes, rules_of
from moment_inference.nested.local.structure import Structure

NUMBERS = 2**22  # most values of likelihoods at once
POINTS = 16  # of the hyperparameters at once: those of one program of a front end
NODES = {1: 11, 2: 9}  # in each dimension of a block, by its size
ENOUGH = 1e-3  # nats of error of a rule for the border that make a dearer one needless
MORE = {1: 21, 2: 15}  # the same, for the error at the centre
Nodes = tuple[np.ndarray, np.ndarray]  # [t, k] of the standardised blocks, and weights [t]


def local_corrections(
    model: ConditionalModel, conditional: Conditional, structure: Structure
) -> Corrections:
    """Return what quadrature of the blocks adds to the ELBO and to the moments of q(x | θ).

    p(y | θ) is exp ELBO times the expectation of ∏ exp r_i (``Remainder``) over the border, and
    over each block given it.
    Source: ``docs/maths.md``, nested inference.
    """
    points = np.flatnonzero(np.isfinite(conditional.elbo) & conditional.factors.is_definite)
    parts = [points[start : start + POINTS] for start in range(0, len(points), POINTS)]
    found = [_Quadrature.of(model, conditional, structure, part).corrections() for part in parts]
    arrays = (np.concatenate(each) for each in zip(*found, strict=True))
    return Corrections(*(_spread(array, points, len(conditional.elbo)) for array in arrays))


def node_count(structure: Structure) -> int:
    """Return how often quadrature evaluates each likelihood at a point."""
    size = structure.blocks.shape[1]
    return len(rules_of(len(structure.border))[-1].nodes) * NODES[size] ** size


def _spread(array: np.ndarray, points: np.ndarray, count: int) -> np.ndarray:
    """Return an array with nan at the other points."""
    spread = np.full((count, *array.shape[1:]), np.nan)
    spread[points] = array
    return spread


class _Given(NamedTuple):
    """The blocks given nodes of the border."""

    logs: np.ndarray  # log E ∏ exp r of each block, and the rows' that have none, [g, b, J + 1]
    moments: tuple[np.ndarray, ...]  # mean without the border's part, variance, third: [g, b, J, k]


@dataclass(frozen=True, eq=False)
class _Quadrature:
    """The integrals at some points of the hyperparameters."""

    structure: Structure
    blocks: Blocks
    remainder: Remainder

    @classmethod
    def of(
        cls,
        model: ConditionalModel,
        conditional: Conditional,
        structure: Structure,
        points: np.ndarray,
    ) -> _Quadrature:
        """Return the integrals at some of the points."""
        matrices = conditional.precision.take(points), conditional.design.take(points)
        blocks = Blocks.of(*matrices, structure)
        return cls(structure, blocks, Remainder.of(model, conditional, points))

    def corrections(self) -> Corrections:
        """Return the corrections of evidence and moments, with an error of the evidence."""
        for rule in rules_of(len(self.structure.border)):
            size = self.structure.blocks.shape[1]
            given = self._all(rule.nodes, product_nodes(size, NODES[size]))
            logs = given.logs.sum(2)
            if rule.error(logs).max() < ENOUGH:
                break
        finer = self._given(rule.nodes[:1], product_nodes(size, MORE[size])).logs
        error = rule.error(logs) + np.abs((finer - given.logs[:, :1]).sum((1, 2)))
        return Corrections(rule.log_mean(logs), *self._moments(rule, logs, given), error)

    def _moments(
        self, rule: Rule, logs: np.ndarray, given: _Given
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return shifts of means, changes of variances, and third moments of the field, [g, d]."""
        border = self.blocks.border_at(rule.nodes)  # [g, b, p]
        within = self.structure.blocks >= 0
        mean, variance, third = (part[:, :, within] for part in given.moments)
        mean = mean + self.blocks.follow(border)[:, :, within]
        zeros = np.zeros_like(border)
        pairs = (mean, border), (variance, zeros), (third, zeros)
        found = rule.moments(logs, *(np.concatenate(pair, 2) for pair in pairs))
        order = np.argsort(np.append(self.structure.blocks[within], self.structure.border))
        mean, variance, third = (part[:, order] for part in found)
        return mean, variance - self.blocks.variances(within)[:, order], third

    def _all(self, nodes: np.ndarray, inner: Nodes) -> _Given:
        """Return the blocks given all nodes of the border, some at a time."""
        numbers = self.remainder.predictor.size * len(inner[0])
        count = max(1, NUMBERS // max(1, numbers))
        starts = range(0, len(nodes), count)
        parts = [self._given(nodes[start : start + count], inner) for start in starts]
        moments = zip(*(part.moments for part in parts), strict=True)
        joined = tuple(np.concatenate(arrays, 1) for arrays in moments)
        return _Given(np.concatenate([part.logs for part in parts], 1), joined)

    def _given(self, nodes: np.ndarray, inner: Nodes) -> _Given:
        places, weights = inner
        by_border, by_block = self.blocks.deviations(nodes, places)
        deviation = by_border[:, :, None] + by_block[:, None]  # [g, b, t, n]
        rest = self.remainder.at(deviation.reshape(len(deviation), -1, deviation.shape[3]))
        sums = self.blocks.sums(rest).reshape(*deviation.shape[:3], -1)
        logs = sums + np.log(weights)[:, None]
        total = logsumexp(logs, axis=2)
        shares = np.exp(logs[..., :-1] - total[:, :, None, :-1])
        return _Given(total, self.blocks.moments(shares, places))
