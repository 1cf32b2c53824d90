"""Covariances of positions: of activations, against the exact ones of pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.values import Gaussian, Spread, Step, Ties
from moment_calculus.values.covariances import lag_covariance

# Largest error in units of the variance of f, as the docstring of lag_covariance states it.
STATED = {"relu": 0.012, "leaky_relu": 0.012, "tanh": 0.0013, "sigmoid": 1e-5, "softplus": 1e-6}


@dataclass(frozen=True, eq=False)
class Lagged(Step):
    """A value of which the covariance of neighbours is given."""

    known: np.ndarray

    def lag(self, value, offset):
        return self.known


@pytest.mark.parametrize("name", STATED)
def test_series_of_an_activation_has_the_stated_error(name):
    ratio, rho = np.meshgrid(np.linspace(-2, 2, 17), np.linspace(-1, 1, 41))
    base = Gaussian(
        np.stack([ratio, ratio]),
        Spread(np.ones((2, *ratio.shape))),
        Lagged(rho[None]),
        axis=None,
        ties=Ties.ALL,
    )
    value = apply(activation(name), base).gaussian()
    lag = lag_covariance(value, (1, 0, 0))[0]
    unit = np.ones_like(rho)
    matrix = np.stack([np.stack([unit, rho], -1), np.stack([rho, unit], -1)], -2)
    mean = np.stack([ratio, ratio], -1)
    exact = pairs.covariance(activation(name), mean, matrix)[..., 0, 1]
    error = np.abs(lag - exact) / value.variance[0]
    assert error.max() < STATED[name]
    spread = value.variance[0, -1]  # of one value with itself, at ρ = 1
    assert (np.abs(lag[-1] - spread) / spread).max() < 1e-7
