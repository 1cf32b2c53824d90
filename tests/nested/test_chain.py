"""Quadrature along a chain of predictors against products of many nodes."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from moment_inference.nested.conditional import Conditioning
from moment_inference.nested.local import chain_evidence, chain_of
from tests.nested.small_models import SmallModel, bernoulli, poisson

THETA = np.array([[-0.4], [0.1]])


def series(steps, kept, border):
    """Design of a series whose first coordinates are seen by all: x_t = kept x_{t-1} + a step."""
    lags = np.subtract.outer(np.arange(steps), np.arange(steps))
    path = np.where(lags >= 0, float(kept) ** np.maximum(lags, 0), 0.0)
    random = np.random.default_rng(5)
    common = np.column_stack([np.ones(steps), random.normal(size=steps)])[:, :border]
    return np.hstack([common, path])


def conditional_of(model):
    return Conditioning(model, THETA[0]).at(THETA)


def exact(model, given, point, count):
    """log p(y | θ) by a product of nodes about the Gaussian."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    grid = np.array([*product(nodes, repeat=model.size)])
    logs = np.array([sum(each) for each in product(np.log(weights), repeat=model.size)])
    root = np.linalg.cholesky(np.linalg.inv(given.precision.dense()[point]))
    x = given.mean[point] + grid @ root.T
    theta = np.repeat(given.theta[[point]], len(x), 0)
    densities = model.densities(theta, x)
    logs += densities["x"] + densities["y"] + 0.5 * (grid**2).sum(1)
    return logsumexp(logs) + np.log(np.diag(root)).sum()


@pytest.mark.parametrize(
    ("kept", "border", "is_count", "rows"),
    [
        (1, 0, True, [0, 1, 2, 3]),
        (1, 0, False, [0, 1, 1, 2, 3]),  # two outcomes at a time
        (0.7, 1, True, [3, 0, 2, 1]),  # in another order
        (-0.6, 1, False, [0, 1, 2, 3]),
        (0.7, 2, True, [0, 1, 2]),
    ],
)
def test_evidence_along_a_chain(kept, border, is_count, rows):
    design = series(1 + max(rows), kept, border)[rows]
    y = np.random.default_rng(2).poisson(1.5, len(rows)).astype(float)
    likelihood = poisson(y) if is_count else bernoulli(np.minimum(y, 1))
    scaled = np.arange(design.shape[1]) >= border
    model = SmallModel(design, scaled, likelihood)
    given = conditional_of(model)
    chain = chain_of(given)
    assert chain is not None
    assert chain.following.shape[2] == border
    found, error = chain_evidence(model, given, chain)
    nodes = 14 if model.size < 5 else 9
    wanted = [exact(model, given, point, nodes) - given.elbo[point] for point in range(2)]
    assert (np.abs(found - wanted) < np.maximum(error, 2e-4)).all()
    assert np.abs(wanted).max() > 1e-3
    assert (error < 5e-3).all()


def test_other_predictors_are_no_chain():
    design = np.random.default_rng(1).normal(size=(6, 6))
    model = SmallModel(design, np.ones(6, bool), poisson(np.ones(6)))
    assert chain_of(conditional_of(model)) is None
