"""Supports of values, and covariances of elements a lag apart."""

from dataclasses import dataclass

import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Gaussian, Spread, Ties, cross_covariance
from moment_calculus.values.lags import lag_covariance
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.protocols import KnowsLags
from moment_calculus.values.spread import overlap

generator = np.random.default_rng(3)
MEAN, VARIANCE = generator.normal(size=(3, 4, 4)), generator.uniform(0.1, 0.5, size=(3, 4, 4))
X = generator.normal(size=(5, 4))
EYE = np.eye(4)


def site(mean, variance, name="w", covariance="full"):
    propagation = propagation_of(covariance, "exact")
    return as_value(Moments(mean, variance=variance), name, propagation)


def layers(weights):
    hidden = X
    for weight in weights:
        hidden = linear(hidden, weight)
        hidden = apply(activation("relu"), hidden).gaussian()
    return hidden


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_layers_with_weights_of_one_site_equal_layers_with_sites_of_their_own(covariance):
    stacked = site(MEAN, VARIANCE, covariance=covariance)
    together = layers(index(stacked, i) for i in range(3))
    apart = layers(site(MEAN[i], VARIANCE[i], f"w{i}", covariance) for i in range(3))
    np.testing.assert_array_equal(together.mean, apart.mean)
    np.testing.assert_array_equal(together.joint_covariance(), apart.joint_covariance())
    assert together.sites == {"w"}


def test_functions_of_all_elements_keep_them_apart():
    scaled = scale_shift(site(MEAN, VARIANCE), 2.0, 1.0)
    first, second = index(scaled, 0), index(scaled, -1)
    assert overlap(first, second) == frozenset()
    assert overlap(first, index(scaled, slice(0, 2))) == {"w"}
    assert overlap(first, index(scaled, slice(1, 3))) == frozenset()


def test_an_element_depends_on_itself_and_on_the_whole():
    all_elements = site(MEAN, VARIANCE)
    first = index(all_elements, 0)
    hidden = linear(X, first)
    for dependent in (index(all_elements, 0), all_elements):
        assert overlap(hidden, dependent) == {"w"}
    with pytest.raises(UnsupportedMoments, match="depend on the same latent"):
        linear(hidden, index(all_elements, 0))


def test_a_value_of_two_elements_depends_on_both():
    all_elements = site(MEAN[0, 0], VARIANCE[0, 0])
    total = add(index(all_elements, 0), index(all_elements, 1))
    assert overlap(total, index(all_elements, 1)) == {"w"}
    assert overlap(total, index(all_elements, 2)) == frozenset()
    np.testing.assert_allclose(total.variance, VARIANCE[0, 0, :2].sum())
    expected = [[*VARIANCE[0, 0, :2], 0.0, 0.0]]
    np.testing.assert_allclose(cross_covariance(total, all_elements), expected)
    product = multiply(total, index(all_elements, 1))
    mean = MEAN[0, 0, :2].sum() * MEAN[0, 0, 1] + VARIANCE[0, 0, 1]
    np.testing.assert_allclose(product.mean, mean)


def test_elements_of_dependent_components_are_not_taken_as_independent():
    all_elements = site(MEAN[0, 0], VARIANCE[0, 0])
    mixed = linear(all_elements, EYE + 0.5)
    assert overlap(index(mixed, 0), index(mixed, 1)) == {"w"}
    given = as_value(Moments(X, covariance=np.stack([EYE] * 5)), "x", Propagation())
    assert overlap(index(given, 0), index(given, 1)) == {"x"}


# Largest error in units of the variance of f, as the docstring of lag_covariance states it.
STATED = {"relu": 0.012, "leaky_relu": 0.012, "tanh": 0.0013, "sigmoid": 1e-5, "softplus": 1e-6}


@dataclass(frozen=True, eq=False)
class Lagged(KnowsLags):
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
