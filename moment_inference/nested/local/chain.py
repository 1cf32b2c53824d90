"""log p(y | θ) where the predictors are a Markov chain, by quadrature along it.

Given a few coordinates of the field, the border, consecutive predictors of a series are a Gaussian
Markov chain, in the model's order or in that of its own coordinates. What the ELBO lacks is then
log E ∏ exp r_t over the chain: one sum after the other, on the nodes of Gauss and Hermite of each
predictor, between which Mehler's formula, E [h_j(z) | z'] = ρʲ h_j(z') for orthonormal Hermite
polynomials h_j, is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from moment_inference.nested.conditional import Conditional
from moment_inference.nested.given.host import ConditionalModel
from moment_inference.nested.local.remainder import Remainder
from moment_inference.nested.local.rules import product_nodes, rules_of
from moment_inference.nested.sparse import Pattern

LONGEST = 1000  # predictors, whose pairs show whether they are a chain
BORDER = 4  # most coordinates beside a chain
NODES, FEWER = 24, 16  # of each predictor; for the error
SAME = 1e-6  # difference of a chain's correlations from products of those between
NUMBERS = 2**22  # most covariances at once
POINTS = 16  # of the hyperparameters at once: those of one program of a front end


@dataclass(frozen=True, eq=False)
class Chain:
    """Predictors as a Markov chain given standard normal coordinates of the border, at points."""

    order: np.ndarray  # of the predictors, [n]
    following: np.ndarray  # slopes of the predictors by the border, [g, n, p]
    deviation: np.ndarray  # of the predictors given the border, [g, n]
    correlation: np.ndarray  # with the one before given the border, zero of the first, [g, n]


def chain_of(conditional: Conditional) -> Chain | None:
    """Return the predictors as a chain, given as few coordinates as possible; None if none."""
    count, size = conditional.design.shape
    if not 2 < count <= LONGEST:
        return None
    pattern = conditional.design.pattern
    common = np.flatnonzero(np.bincount(pattern.columns, minlength=size) == count)
    best = _BestPoint.of(conditional)
    sizes = range(1 + len(common) if len(common) <= BORDER else 1)
    for border in chain.from_iterable(combinations(common, some) for some in sizes):
        coordinates = np.array(border, dtype=int)
        order = _order(pattern, coordinates)
        if best.is_chain(coordinates, order):
            return _chain(conditional, coordinates, order)
    return None


def _order(pattern: Pattern, border: np.ndarray) -> np.ndarray:
    """Return the predictors by the mean number of their own coordinates."""
    own = ~np.isin(pattern.columns, border)
    rows, count = pattern.rows[own], pattern.shape[0]
    sums = np.bincount(rows, weights=pattern.columns[own], minlength=count)
    return np.argsort(sums / np.maximum(np.bincount(rows, minlength=count), 1), kind="stable")


class _BestPoint(NamedTuple):
    """Covariances at the best point, which has the structure of all."""

    field: np.ndarray  # [d, d]
    beside: np.ndarray  # of the field and the predictors, [d, n]
    predictors: np.ndarray  # [n, n]

    @classmethod
    def of(cls, conditional: Conditional) -> _BestPoint:
        """Return the covariances."""
        best = np.array([np.nanargmax(conditional.log_density)])
        field = np.linalg.inv(conditional.precision.take(best).dense()[0])
        design = conditional.design.take(best).dense()[0]
        beside = field @ design.T
        return cls(field, beside, design @ beside)

    def is_chain(self, border: np.ndarray, order: np.ndarray) -> bool:
        """Return whether correlations given the border are products of those between."""
        found, beside = self.predictors, self.beside[border]
        if len(border):
            within = self.field[np.ix_(border, border)]
            found = found - beside.T @ np.linalg.solve(within, beside)
        found = found[np.ix_(order, order)]
        deviation = np.sqrt(np.maximum(np.diag(found), 0))
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = np.nan_to_num(found / np.outer(deviation, deviation))
        expected = np.eye(len(found))
        for place in range(1, len(found)):
            step = correlation[place - 1, place]
            expected[:place, place] = expected[:place, place - 1] * step
        return bool(np.abs(np.triu(correlation - expected, 1)).max() < SAME)


def _chain(conditional: Conditional, border: np.ndarray, order: np.ndarray) -> Chain:
    before = np.empty(len(order), dtype=int)
    before[order] = np.roll(order, 1)
    variance, lagged, beside = _covariances(conditional, border, before)
    following = beside
    if len(border):
        root = np.linalg.cholesky(_border_covariance(conditional, border))
        following = np.swapaxes(np.linalg.solve(root, np.swapaxes(beside, 1, 2)), 1, 2)
    deviation = np.sqrt(np.maximum(variance - (following**2).sum(2), 0))
    lagged = lagged - (following * following[:, before]).sum(2)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.nan_to_num(lagged / (deviation * deviation[:, before])).clip(-1, 1)
    correlation[:, order[0]] = 0
    return Chain(order, following, deviation, correlation)


def _covariances(
    conditional: Conditional, border: np.ndarray, before: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predictors' variances, and covariances with those before and with the border."""
    (points, count), size = conditional.predictor.shape, conditional.design.shape[1]
    variance, lagged = np.empty((points, count)), np.empty((points, count))
    beside = np.empty((points, count, len(border)))
    width = max(1, NUMBERS // (points * (count + size)))
    for start in range(0, count, width):
        part = np.arange(start, min(start + width, count))
        crossed = conditional.factors.crossed(conditional.design, part[0], part[-1] + 1)
        columns = conditional.design.times(crossed)
        variance[:, part] = columns[:, part, part - start]
        lagged[:, part] = columns[:, before[part], part - start]
        beside[:, part] = np.swapaxes(crossed[:, border], 1, 2)
    return variance, lagged, beside


def _border_covariance(conditional: Conditional, border: np.ndarray) -> np.ndarray:
    units = np.zeros((len(conditional.theta), conditional.design.shape[1], len(border)))
    units[:, border, np.arange(len(border))] = 1
    return conditional.factors.solve(units)[:, border]


def chain_evidence(
    model: ConditionalModel, conditional: Conditional, along: Chain
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the ELBO lacks of log p(y | θ), [g], and its error; nan where that failed."""
    points = np.arange(len(conditional.theta))
    parts = [points[start : start + POINTS] for start in range(0, len(points), POINTS)]
    found = [_evidence(model, conditional, along, part) for part in parts]
    evidence, error = (np.concatenate(each) for each in zip(*found, strict=True))
    return evidence, error


def _evidence(
    model: ConditionalModel, conditional: Conditional, along: Chain, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    remainder = Remainder.of(model, conditional, points)
    following, deviation, correlation = (
        part[points] for part in (along.following, along.deviation, along.correlation)
    )

    def given(node: np.ndarray, count: int) -> np.ndarray:
        """Return log E ∏ exp r given a node of the border, by nodes of the chain."""
        places, weights = product_nodes(1, count)
        sort = np.argsort(places[:, 0])
        places, weights = places[sort, 0], weights[sort]
        apart = (following @ node)[:, None] + deviation[:, None] * places[:, None]
        rest = remainder.at(apart)[:, :, along.order]
        return _along(rest, correlation[:, along.order], places, weights)

    for rule in rules_of(following.shape[2]):
        logs = np.stack([given(node, NODES) for node in rule.nodes], 1)
        if rule.error(logs).max() < 1e-3:
            break
    fewer = given(rule.nodes[0], FEWER)
    return rule.log_mean(logs), rule.error(logs) + np.abs(fewer - logs[:, 0])


def _along(
    rest: np.ndarray, correlation: np.ndarray, places: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return log E ∏_t exp r_t(z_t) of a standardised chain, from r at nodes [g, k, n]."""
    orders = np.arange(len(places))
    norms = np.sqrt(np.cumprod(np.maximum(orders, 1.0)))
    polynomials = np.polynomial.hermite_e.hermevander(places, len(orders) - 1) / norms
    projection = weights[:, None] * polynomials
    message = np.ones(rest.shape[:2])
    total = np.zeros(len(rest))
    for time in range(rest.shape[2]):
        coefficients = (message @ projection) * correlation[:, time, None] ** orders
        message = coefficients @ polynomials.T
        highest = rest[:, :, time].max(1)
        message = message * np.exp(rest[:, :, time] - highest[:, None])
        scale = np.abs(message).max(1)
        message, total = message / scale[:, None], total + highest + np.log(scale)
    with np.errstate(invalid="ignore", divide="ignore"):
        return total + np.log(message @ weights)
