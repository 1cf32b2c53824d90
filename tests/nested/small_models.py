"""Latent Gaussian models in NumPy alone, for tests without a framework."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def poisson(counts):
    """Derivatives of y η − e^η."""

    def derivative(order, eta):
        linear = {0: counts * eta, 1: counts}.get(order, 0)
        return linear - np.exp(eta)

    return derivative


def bernoulli(outcomes):
    """Derivatives of y η − log(1 + e^η)."""

    def derivative(order, eta):
        p = expit(eta)
        q = p * (1 - p)
        cumulants = (
            lambda: np.logaddexp(0, eta),
            lambda: p,
            lambda: q,
            lambda: q * (1 - 2 * p),
            lambda: q * (1 - 6 * q),
            lambda: q * (1 - 2 * p) * (1 - 12 * q),
        )
        return {0: outcomes * eta, 1: outcomes}.get(order, 0) - cumulants[order]()

    return derivative


def mixed(first, count, second):
    """Some likelihood for the first predictors, another for the rest."""

    def derivative(order, eta):
        return np.concatenate(
            [first(order, eta[..., :count]), second(order, eta[..., count:])], axis=-1
        )

    return derivative


@dataclass
class SmallModel:
    """x ~ N(0, diag(deviations²)), deviations e^θ where a coordinate is scaled; η = A x.

    Attributes:
        design: A, [n, d].
        scaled: coordinates whose deviation is e^θ; 1 for the others, [d].
        derivative: of the log likelihoods, by order at η.
    """

    design: np.ndarray
    scaled: np.ndarray
    derivative: object

    @cached_property
    def size(self):
        return self.design.shape[1]

    def deviations(self, theta):
        return np.where(self.scaled, np.exp(theta[:, :1]), 1.0)

    def log_prior(self, theta):
        return -0.5 * (theta**2).sum(1) - 0.5 * theta.shape[1] * np.log(2 * np.pi)

    def densities(self, theta, x):
        scale = self.deviations(theta)
        field = -0.5 * (x / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)
        y = self.derivative(0, x @ self.design.T)
        return dict(theta=self.log_prior(theta), x=field.sum(1), y=y.sum(1))

    def predictors(self, theta, x):
        return x @ self.design.T

    def at_zero(self, theta):
        zeros = np.zeros((len(theta), self.size))
        return self.densities(theta, zeros)["x"], zeros, np.zeros((len(theta), len(self.design)))

    def curvature(self, theta, directions):
        return directions / self.deviations(theta)[:, None] ** 2

    def slopes(self, theta, directions):
        return np.broadcast_to(
            directions @ self.design.T, (len(theta), len(directions), len(self.design))
        )

    def expected(self, theta, mean, variance):
        return self._expected(range(3), mean, variance)

    def higher(self, theta, mean, variance):
        return self._expected(range(3, 6), mean, variance)

    def log_likelihoods(self, theta, eta):
        return self.derivative(0, eta)

    def _expected(self, orders, mean, variance):
        eta = mean + np.sqrt(variance) * NODES[:, None, None]
        found = [np.tensordot(WEIGHTS, self.derivative(order, eta), 1) for order in orders]
        return np.stack(found, 1)


def groups(count=40, members=3, border=2, local=1, seed=0):
    """Design [n, d] and which coordinates are scaled: all rows have the border, and local ones."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(count), members)
    design = np.zeros((len(group), border + count * local))
    design[:, :border] = generator.normal(size=(len(group), border))
    design[:, :1] = 1
    for k in range(local):
        design[np.arange(len(group)), border + group * local + k] = (
            1 if k == 0 else generator.normal(size=len(group))
        )
    return design, np.arange(design.shape[1]) >= border
