"""Groups that share two coefficients, given hyperparameters: cubature over the coefficients, and
quadrature of each group's intercept, for `nested_references`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import nested_gaussians as gaussians
import numpy as np
from nested_gaussians import ENOUGH, TURNS
from scipy.special import logsumexp, softmax

COEFFICIENTS, LOCALS = 7, 32  # nodes of each
ORDERS = 13  # of Hermite polynomials in the density of an element
CENTRES, SHARES = np.polynomial.hermite_e.hermegauss(LOCALS)


@dataclass
class Groups:
    """Groups with rows [J, n] given the spread of their intercepts."""

    x: np.ndarray
    y: np.ndarray
    kind: Callable  # a likelihood by y
    spread: float
    wide: float = 5.0  # deviation of the coefficients' priors

    def __post_init__(self):
        self.precision = self.spread**-2.0
        self.likelihood = self.kind(self.y)

    def integrated(self, arrow, elements):
        return integrated(self, arrow, elements)

    def only(self, group):
        """One of the groups."""
        rows = slice(group, group + 1)
        return Groups(self.x[rows], self.y[rows], self.kind, self.spread, self.wide)


@dataclass
class Arrow:
    """The Gaussian of coefficients and intercepts with the largest ELBO, by its blocks."""

    coefficients: np.ndarray  # [2]
    effects: np.ndarray  # [J]
    covariance: np.ndarray  # [2, 2]
    variances: np.ndarray  # [J]
    predictors: np.ndarray  # variances [J, n]
    elbo: float = 0.0

    def moved(self, coefficients, effects, share):
        return self.coefficients + share * coefficients, self.effects + share * effects

    @property
    def mean(self):
        return np.r_[self.coefficients, self.effects]

    @property
    def deviations(self):
        return np.sqrt(np.r_[np.diag(self.covariance), self.variances])


def fitted(given, start=None):
    """Newton's method with expected derivatives, by the arrow's blocks."""
    x, groups = given.x, len(given.x)
    coefficients, effects = np.zeros(2), np.zeros(groups)
    variance = np.full(x.shape, 0.1)
    if start is not None:
        coefficients, effects, variance = start.coefficients, start.effects, start.predictors
    for turn in range(TURNS):
        predictor = coefficients[0] + coefficients[1] * x + effects[:, None]
        value, slope, curvature = given.likelihood.expected(predictor, variance)
        arrow = factored(given, coefficients, effects, curvature)
        gradient = np.array([slope.sum(), (slope * x).sum()]) - coefficients / given.wide**2
        local = slope.sum(1) - given.precision * effects
        sides, inner = arrow_parts(given, curvature)
        first = arrow.covariance @ (gradient - sides.T @ (local / inner))
        second = (local - sides @ first) / inner
        moves = first[0] + first[1] * x + second[:, None]
        change = np.abs(moves / np.sqrt(arrow.predictors)).max()
        if change < ENOUGH and np.allclose(variance, arrow.predictors, ENOUGH):
            break
        variance = gaussians.renewed(variance, arrow.predictors, turn)
        share = min(1.0, 2.0 / np.abs(moves).max())
        coefficients, effects = arrow.moved(first, second, share)
    else:
        raise RuntimeError("no convergence")
    arrow.elbo = elbo(given, arrow, value.sum(), inner)
    return arrow


def arrow_parts(given, curvature):
    """The blocks of the precision beside the coefficients', and the intercepts' own."""
    sides = np.stack([curvature.sum(1), (curvature * given.x).sum(1)], 1)
    return sides, curvature.sum(1) + given.precision


def factored(given, coefficients, effects, curvature):
    """The Gaussian of this curvature."""
    x = given.x
    sides, inner = arrow_parts(given, curvature)
    cross = (curvature * x).sum()
    corner = np.array([[curvature.sum(), cross], [cross, (curvature * x * x).sum()]])
    corner = corner + np.eye(2) / given.wide**2 - (sides.T / inner) @ sides
    covariance = np.linalg.inv(corner)
    weights = -sides / inner[:, None]  # of the coefficients in an intercept's conditional mean
    rows = np.stack([np.ones_like(x), x], -1) + weights[:, None]
    predictors = np.einsum("jna,ab,jnb->jn", rows, covariance, rows) + 1 / inner[:, None]
    variances = np.einsum("ja,ab,jb->j", weights, covariance, weights) + 1 / inner
    return Arrow(coefficients, effects, covariance, variances, predictors)


def elbo(given, arrow, expected, inner):
    groups, wide = len(arrow.effects), given.wide
    prior = -2 * np.log(wide) - groups * np.log(given.spread)
    prior -= 0.5 * (arrow.coefficients @ arrow.coefficients + np.trace(arrow.covariance)) / wide**2
    prior -= 0.5 * given.precision * (arrow.effects**2 + arrow.variances).sum()
    entropy = np.linalg.slogdet(arrow.covariance)[1] - np.log(inner).sum() + groups + 2
    return expected + prior + 0.5 * entropy


# ---------------------------------------------------------------------------------------------
# Quadrature


def integrated(given, arrow, elements):
    """Log evidence, and the coefficients of densities of elements, by their places in x."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(COEFFICIENTS)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    shares = np.outer(weights, weights).ravel() / weights.sum() ** 2
    root = np.linalg.cholesky(arrow.covariance)
    places = arrow.coefficients + grid @ root.T
    logs = np.array([of_coefficients(given, arrow, place) for place in places])
    logs = logs + 0.5 * (grid**2).sum(1) + np.log(np.diag(root)).sum() + gaussians.UNIT
    total = logsumexp(logs, b=shares)
    shares = shares * np.exp(logs - total)
    standardised = (places - arrow.coefficients) / np.sqrt(np.diag(arrow.covariance))
    found = []
    for place in elements:
        if place < 2:
            found.append(gaussians.polynomials(standardised[:, place], ORDERS) @ shares)
        else:
            found.append(of_effect(given, arrow, place - 2, places, shares))
    return total, np.array(found)


def of_coefficients(given, arrow, place):
    """Log joint density of the data and of coefficients."""
    prior = -0.5 * place @ place / given.wide**2 - 2 * np.log(given.wide) - gaussians.UNIT
    deviations = np.sqrt(arrow.variances)
    return prior + logsumexp(by_node(given, arrow.effects, deviations, place), axis=0).sum()


def by_node(given, effects, deviations, place):
    """Terms of quadrature [nodes, J] of the groups' log densities, about each group's Gaussian."""
    logs = of_rows(given, place, effects + CENTRES[:, None] * deviations)
    logs = logs + (0.5 * CENTRES**2 + np.log(SHARES))[:, None]  # the shares' sum is √(2π)
    return logs + np.log(deviations)


def of_rows(given, place, effects):
    """Log joint densities of groups' rows and intercepts [..., J]."""
    predictor = place[0] + place[1] * given.x + effects[..., None]
    prior = -0.5 * given.precision * effects**2 - np.log(given.spread) - 0.5 * gaussians.UNIT
    return given.likelihood.value(predictor).sum(-1) + prior


def of_effect(given, arrow, group, places, shares):
    """Coefficients of the density of a group's intercept."""
    one, effect = given.only(group), arrow.effects[group : group + 1]
    deviation = np.sqrt(arrow.variances[group : group + 1])
    terms = [by_node(one, effect, deviation, place)[:, 0] for place in places]
    return gaussians.polynomials(CENTRES, ORDERS) @ (softmax(np.array(terms), axis=1).T @ shares)
