"""Quadrature of local latents against sums over dense grids of nodes."""

from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from moment_inference.nested.conditional import Conditioning
from moment_inference.nested.local import local_corrections, structure_of

GROUPS, ROWS = 12, 2
HALF = 0.5 * np.log(2 * np.pi)


class Counts:
    """Counts of groups with coefficients of their own, which share others; θ is the log scale."""

    def __init__(self, shared, own):
        random = np.random.default_rng(3)
        count = GROUPS * ROWS
        self.shared, self.own, self.size = shared, own, shared + GROUPS * own
        columns = np.ones((count, shared))
        columns[:, 1:] = 0.5 * random.normal(size=(count, max(shared - 1, 0)))
        self.design = np.zeros((count, self.size))
        self.design[:, :shared] = columns
        for row in range(count):
            start = shared + row // ROWS * own
            self.design[row, start : start + own] = [1.0, *random.normal(size=own - 1)]
        self.y = random.poisson(np.exp(0.3 + 0.5 * random.normal(size=count)))

    def precision(self, theta):
        scales = np.broadcast_to(np.exp(-2 * theta), (len(theta), self.size)).copy()
        scales[:, : self.shared] = 1.0
        return scales

    def log_prior(self, theta):
        return np.zeros(len(theta))

    def at_zero(self, theta):
        precision, count = self.precision(theta), len(theta)
        constant = 0.5 * np.log(precision / (2 * np.pi)).sum(1)
        return constant, np.zeros((count, self.size)), np.zeros((count, len(self.y)))

    def curvature(self, theta, directions):
        return self.precision(theta)[:, None] * directions

    def slopes(self, theta, directions):
        return np.broadcast_to(
            directions @ self.design.T, (len(theta), len(directions), len(self.y))
        )

    def expected(self, theta, mean, variance):
        rate = np.exp(mean + variance / 2)
        return np.stack([self.y * mean - rate - gammaln(self.y + 1), self.y - rate, -rate], 1)

    def log_likelihoods(self, theta, eta):
        return self.y * eta - np.exp(eta) - gammaln(self.y + 1)


def exact(model, given):
    """log p(y | θ) and moments of the border at the first point, by products of many nodes."""
    places, shares = nodes_about(given, range(model.shared), 12 if model.shared < 3 else 6)
    logs = shares - 0.5 * (places**2 + np.log(2 * np.pi)).sum(1)
    eta = places @ model.design[:, : model.shared].T
    for group in range(GROUPS):
        rows = slice(group * ROWS, (group + 1) * ROWS)
        own = range(model.shared + group * model.own, model.shared + (group + 1) * model.own)
        local, weights = nodes_about(given, own, 20)
        spread = np.exp(given.theta[0])
        weights = weights - (0.5 * (local / spread) ** 2 + np.log(spread) + HALF).sum(1)
        value = eta[:, None, rows] + local @ model.design[rows, own.start : own.stop].T
        y = model.y[rows]
        logs = logs + logsumexp((y * value - np.exp(value) - gammaln(y + 1)).sum(2) + weights, 1)
    total = logsumexp(logs)
    chance = np.exp(logs - total)
    mean = chance @ places
    return total, mean, chance @ (places - mean) ** 2


def nodes_about(given, own, count):
    """Places of some coordinates at nodes, with the log weights of an integral over them."""
    own = list(own)
    root = np.linalg.cholesky(np.linalg.inv(given.precision.dense()[0])[np.ix_(own, own)])
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    logs = np.log(weights) + nodes**2 / 2
    grid = np.array([*product(nodes, repeat=len(own))]).reshape(-1, len(own))
    total = np.array([sum(each) for each in product(logs, repeat=len(own))])
    return given.mean[0, own] + grid @ root.T, total + np.log(np.diag(root)).sum()


@pytest.mark.parametrize(
    ("shared", "own", "evidence", "variances"),
    [
        (1, 1, 1e-3, 0.01),
        (2, 1, 1e-3, 0.01),
        (1, 2, 1e-3, 0.01),
        (2, 2, 1e-3, 0.01),
        (5, 1, 1e-2, 0.04),  # a border by pairs of its coordinates
    ],
)
def test_quadrature_of_blocks_finds_evidence_and_moments(shared, own, evidence, variances):
    model = Counts(shared, own)
    given = Conditioning(model, np.array([-0.4])).at(np.array([[-0.4], [-0.1]]))
    structure = structure_of(given.precision.pattern)
    assert structure is not None
    assert (len(structure.border), *structure.blocks.shape) == (shared, GROUPS, own)
    found = local_corrections(model, given, structure)
    total, mean, variance = exact(model, given)
    assert given.elbo[0] + found.evidence[0] == pytest.approx(total, abs=evidence)
    assert abs(found.evidence[0]) > 10 * evidence
    assert abs(given.elbo[0] + found.evidence[0] - total) <= found.error[0]
    spread = np.sqrt(variance)
    border = slice(0, shared)
    assert (given.mean + found.mean)[0, border] == pytest.approx(mean, abs=0.01 * spread.min())
    corrected = given.factors.marginal_variances() + found.variance
    assert corrected[0, border] == pytest.approx(variance, rel=variances)


def test_blocks_of_three_are_no_local_latents():
    model = Counts(1, 3)
    given = Conditioning(model, np.array([-0.4])).at(np.array([[-0.4]]))
    assert structure_of(given.precision.pattern) is None
