"""Sensitivities are those of refits, and a response does not follow later training."""

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import Predictive

from pyro_moments import DVIGuide, fit
from pyro_moments.response.linear_response import linear_response
from tests.pyro.response.models import COUNTS, X, counts

STEP = 3e-3


def refit(**changes):
    pyro.clear_param_store()
    guide = DVIGuide()
    found = fit(counts, guide, X, COUNTS, method="newton", float64=True, tolerance=1e-18, **changes)
    return guide, found.params["DVIGuide.locs.b"]


@pytest.fixture
def response():
    guide, _ = refit()
    return linear_response(counts, guide, X, COUNTS)


def slope(change):
    """Of the location of b, by two refits."""
    _, up = refit(**change(STEP))
    _, down = refit(**change(-STEP))
    return (up - down) / (2 * STEP)


@pytest.mark.parametrize("row", [0, 7])
def test_influence(response, row):
    weights = lambda step: {"weights": torch.ones(40).double() + step * torch.eye(40)[row]}  # noqa: E731
    found = response.influence("b", datum="data")[:, row]
    torch.testing.assert_close(found, slope(weights), rtol=1e-3, atol=3e-6)


def test_prior_sensitivity(response):
    found = response.prior_sensitivity("b")
    assert {site: {*by} for site, by in found.items()} == {
        "a": {"concentration", "rate"},
        "b": {"loc", "scale"},
    }
    expected = slope(lambda step: {"loc": step})
    torch.testing.assert_close(found["b"]["loc"], expected, atol=3e-6, rtol=0)


def everything(response):
    return [
        response.covariance(),
        response.influence("a", datum="data"),
        response.moments(lambda sites: {"both": (sites["b"] ** 2, sites["a"])})["both"][0].mean,
        response.prior_sensitivity("b")["a"]["rate"],
        response.predict(X[:3])["y"].epistemic_variance,
        *response.interval()["a"],
    ]


@pytest.mark.parametrize("clear", [False, True])
def test_later_training(response, clear):
    before = everything(response)
    guide = response.problem.program.program.guide
    if clear:
        pyro.clear_param_store()
        guide = DVIGuide()
    fit(counts, guide, X.float().double(), COUNTS, steps=5, float64=True)
    now = {name: value.clone() for name, value in pyro.get_param_store().items()}
    state = pyro.util.get_rng_state()
    for one, other in zip(before, everything(response), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    after = pyro.util.get_rng_state()
    assert torch.equal(state["torch"], after["torch"])
    assert np.array_equal(state["numpy"][1], after["numpy"][1])
    assert state["random"] == after["random"]
    assert torch.get_default_dtype() is torch.float32
    assert now.keys() == {*pyro.get_param_store()}
    for name, value in now.items():
        assert torch.equal(value, pyro.get_param_store()[name])


def test_an_error_leaves_nothing_behind(response):
    before = dict(pyro.get_param_store().items())
    with pytest.raises(ZeroDivisionError):
        response.moments(lambda sites: 1 / 0)
    assert torch.get_default_dtype() is torch.float32
    assert before.keys() == {*pyro.get_param_store()}
    everything(response)


def test_jacobians_forwards_and_backwards(response):
    functional = response.problem.quantities("y", (X[:6],), {}).functional
    jacobian = functional.vjp(np.eye(6))
    rows = np.random.default_rng(0).normal(size=[11, jacobian.shape[1]])
    np.testing.assert_allclose(functional.jvp(rows), rows @ jacobian.T, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(functional.vjp(np.eye(6)[:1]), jacobian[:1], rtol=1e-12)


def test_draws(response):
    torch.manual_seed(0)
    draws = response.sample(4000)
    torch.manual_seed(0)
    torch.testing.assert_close(draws, response.sample(4000), rtol=0, atol=0)
    assert (draws["a"] > 0).all()
    torch.testing.assert_close(torch.cov(draws["b"].T), response.covariance("b"), rtol=0.1, atol=0)
    some = {name: values[:5] for name, values in draws.items()}
    assert Predictive(counts, posterior_samples=some)(X)["y"].shape == (5, 40)
