"""Masks belong to data: what is pooled depends on each of them; rows that are none are refused."""

import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.table import activation
from moment_calculus.operations.dropout.noise import noise
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.reductions import reduce_mean, reduce_sum
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import cross_covariance
from tests.dropout import hosts
from tests.dropout.hosts import PRIOR, SCALE, evaluated

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.usefixtures("double_precision", "double_precision_in_jax"),
]
P = 0.3
FLOW = propagation_of("full", "exact")
X = np.random.default_rng(2).normal(size=(3, 2))
M = np.random.default_rng(3).normal(size=(2, 2))
WIDE = np.random.default_rng(4).normal(size=(2, 2))


def layer():
    return linear(noise("z", X, 0.5 * X**2, FLOW), M)


def in_samples(count=100_000):
    z = 1 + 0.5**0.5 * np.random.default_rng(5).normal(size=(count, *X.shape))
    return (z * X) @ M.T


SUMS = {
    "sum with the mean": (lambda h: add(h, reduce_mean(h, [0])), np.eye(3) + 1 / 3),
    "difference from the mean": (lambda h: subtract(h, reduce_mean(h, [0])), np.eye(3) - 1 / 3),
    "sum with a sum of a map": (
        lambda h: add(linear(h, WIDE), linear(reduce_sum(h, [0]), WIDE)),
        np.eye(3) + 1,
    ),
    "difference of what is pooled": (
        lambda h: subtract(reduce_sum(h, [0], keepdims=True), reduce_mean(h, [0], keepdims=True)),
        np.full((1, 3), 2 / 3),
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_what_is_pooled_depends_on_each_row(name):
    """Exactly: Var of Σ_j A_ij h_j for independent rows h_j."""
    function, rows = SUMS[name]
    found = function(layer()).gaussian()
    matrix = WIDE @ M if "map" in name else M
    each = matrix @ (0.5 * X[:, :, None] ** 2 * matrix.T)
    expected = np.einsum("ij,jde->ide", rows**2, each)
    np.testing.assert_allclose(found.joint_covariance(), expected, rtol=1e-12)


def test_what_is_pooled_meets_later_values_and_itself():
    h = layer()
    pooled, later = reduce_sum(h, [0]), add(h, 1.0)
    each = h.joint_covariance()
    np.testing.assert_allclose(cross_covariance(pooled, later), each, rtol=1e-12)
    other = reduce_sum(later, [0])
    np.testing.assert_allclose(cross_covariance(pooled, other), each.sum(0), rtol=1e-12)


PRODUCTS = {
    "product": (lambda h: multiply(h, reduce_mean(h, [0])), lambda h: h * h.mean(1, keepdims=True)),
    "gate": (
        lambda h: multiply(h, apply(activation("relu"), reduce_mean(h, [0]))),
        lambda h: h * np.maximum(h.mean(1, keepdims=True), 0),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_what_is_pooled(name):
    """Of jointly Gaussian factors, within 4.5 standard errors of draws."""
    function, plain = PRODUCTS[name]
    found, draws = function(layer()).gaussian(), plain(in_samples())
    squares = (draws - draws.mean(0)) ** 2
    for ours, theirs in ((found.mean, draws), (found.variance, squares)):
        error = theirs.std(0) / len(draws) ** 0.5
        assert (np.abs(ours - theirs.mean(0)) < 4.5 * error).all()


def model_of(function, *plates):
    def model(host, x, y=None):
        w = host.language.sample("first", host.dist.Normal(0.0, PRIOR).expand((2, 2)).to_event(2))
        f = function(x @ w)
        if not plates:
            host.language.sample("obs", host.dist.Normal(f, SCALE).to_event(1), obs=y)
            return
        with host.language.plate("data", plates[0]):
            host.language.sample("obs", host.dist.Normal(f, SCALE), obs=y)

    return model


def run(monkeypatch, host, model, x, y):
    monkeypatch.setattr(hosts, "X", x)
    monkeypatch.setattr(hosts, "Y", y)
    return evaluated(host, model, p=P)[-1]


@pytest.mark.parametrize("plates", [(2,), ()])
def test_rows_that_are_no_data_are_refused(host, plates, monkeypatch):
    """A datum has one mask, which rows of it would share."""
    model = model_of(lambda h: h.reshape(2, 2, 2).mean(1)[:, 0], *plates)
    where = "'obs' in plate 'data' of 2 elements" if plates else r"'obs' in no plate, of shape \(2"
    with pytest.raises(
        UnsupportedMoments, match=rf"'first' .* 4 row.* the data \({where}"
    ) as found:
        run(monkeypatch, host, model, np.ones((4, 2)), np.zeros(2))
    assert "name the site in sample_sites" in found.value.remedy
    assert found.value.sites == ("first",)
