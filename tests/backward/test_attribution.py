"""Shares of the variance of a prediction by sites."""

from collections import defaultdict
from unittest.mock import patch

import numpy as np
import pytest
import torch
from jax import enable_x64

import pyro_moments
from moment_calculus.functions.table import activation
from moment_calculus.operations.backward.shares import COVARIANCE, SITE, shares_of
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.operations.linear.maps import linear
from moment_calculus.values import Gaussian, Spread, Ties
from moment_calculus.values.backward import asked, residuals
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements
from tests.backward.cases import referred
from tests.backward.programs import CASES
from tests.fitting.models import HOSTS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3))
SHAPES = {"w1": (4, 3), "w2": (4, 4), "w3": (2, 4)}
LOCS = {name: RNG.normal(size=shape) / 2 for name, shape in SHAPES.items()}
SCALES = {name: RNG.uniform(0.1, 0.3, size=shape) for name, shape in SHAPES.items()}


def weight(name, variance=None):
    variance = SCALES[name] ** 2 if variance is None else variance
    return Gaussian(
        torch.tensor(LOCS[name]),
        Spread(torch.tensor(variance)),
        support=all_elements([name]),
        ties=Ties.NONE,
        propagation=Propagation("backward"),
    )


def network(function, **variances):
    h = torch.tensor(X)
    for name in SHAPES:
        h = linear(h, weight(name, variances.get(name)))
        h = h if name == "w3" else apply(activation(function), h)
    return h


def test_a_linear_network_has_the_shares_of_its_closed_form():
    """Var[w2 w1 x] = m2² V1 x² + V2 (m1 x)² + V2 V1 x² for independent weights."""
    x, (m1, m2) = torch.tensor(X), (torch.tensor(LOCS[name]) for name in ("w1", "w3"))
    v1, v2 = (torch.tensor(SCALES[name] ** 2) for name in ("w1", "w3"))
    shares = shares_of(linear(linear(x, weight("w1")), weight("w3")))
    found = {(share.name, share.kind): share.variance for share in shares}
    hidden = x**2 @ v1.T
    expected = {
        ("w1", "site"): hidden @ (m2**2).T,
        ("w3", "site"): (x @ m1.T) ** 2 @ v2.T,
        ("w3", "noise x noise"): hidden @ v2.T,
    }
    assert found.keys() == expected.keys()
    for key, variance in expected.items():
        torch.testing.assert_close(found[key], variance, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("function", ["tanh", "relu"])
def test_a_share_is_the_variance_of_a_site_times_the_derivative_by_it(function):
    """With the moments of the sweep forwards held, a share is linear in its own variances."""
    value = network(function)
    before = {(share.name, share.kind): share.variance for share in shares_of(value)}
    for name in ("w1", "w2"):
        value = network(function)
        leaf = _leaf(value, name)
        step = 1e-3
        leaf.spread.variance = leaf.spread.variance * (1 + step)
        after = {(share.name, share.kind): share.variance for share in shares_of(value)}
        derivative = (after[name, "site"] - before[name, "site"]) / step
        torch.testing.assert_close(derivative, before[name, "site"], rtol=1e-8, atol=1e-12)
        others = [key for key in before if key[0] != name]
        for key in others:
            torch.testing.assert_close(after[key], before[key], rtol=0, atol=0)


def _leaf(value, name):
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if not current.step.inputs and current.sites == {name}:
            return current
        waiting.extend(current.step.inputs)
    raise LookupError(name)


def _prediction(host):
    def model():
        h = host.array(X)
        for name, shape in SHAPES.items():
            prior = host.dist.Normal(host.array(np.zeros(shape)), 1.0).to_event(2)
            h = h @ host.language.sample(name, prior).T
            h = h if name == "w3" else host.np.tanh(h)
        with host.language.plate("rows", len(X)):
            host.language.sample("y", host.dist.Normal(h[..., 0], host.np.exp(h[..., 1])))

    def guide():
        for name in SHAPES:
            fn = host.dist.Normal(host.array(LOCS[name]), host.array(SCALES[name]))
            host.language.sample(name, fn.to_event(2))

    return host.package.predict(model, guide, *host.given({}), covariance="backward")["y"]


def test_shares_of_a_prediction_sum_to_its_variance_and_hosts_agree():
    with enable_x64(True):
        first = _prediction(HOSTS["numpyro"])
        theirs = first.attribution()
        np.testing.assert_allclose(theirs.variance, first.variance, rtol=1e-10)
        second = _prediction(HOSTS["pyro"])
        ours = second.attribution()
        np.testing.assert_allclose(ours.variance, second.variance, rtol=1e-10)
        assert {source.label for source in ours} == {source.label for source in theirs}
        for source in ours:
            np.testing.assert_allclose(
                source.variance, theirs[source.label].variance, rtol=1e-8, atol=1e-14
            )
    assert "y (observation)" in ours.mean_shares()
    assert sum(ours.mean_shares().values()) == pytest.approx(1.0)
    assert str(ours).count("\n") == len(ours)


def test_noisy_inputs_are_told_apart():
    noisy = pyro_moments.Moments(torch.zeros(3), variance=torch.tensor([1.0, 2.0, 3.0]))
    slope = torch.tensor([[1.0, 2.0, 0.0]])
    moments = pyro_moments.propagate(lambda x: x @ slope.T, noisy, covariance="backward")
    source = moments.attribution()["input 0"]
    torch.testing.assert_close(source.elements, torch.tensor([[1.0, 8.0, 0.0]]))
    with pytest.raises(ValueError, match="only moments that propagate or predict returned"):
        noisy.attribution()


REFERENCES = [case for case in CASES if case.reference and not case.linear]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shares_sum_to_the_variance(case):
    """Weights that enter as noise of their layer are pulled back one by one for the shares."""
    value = case.result()
    if not asked.is_exact(value):
        total = sum(share.variance for share in shares_of(value))
        torch.testing.assert_close(total, asked.variance(value), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("case", REFERENCES, ids=lambda case: case.name)
def test_shares_of_sites_are_those_of_the_reference(case):
    """The first noises of the reference are those of the sites."""
    vocabulary, result = referred(case, 0.6)
    with patch.object(residuals, "_between", lambda *_, **__: None):
        found: dict = defaultdict(float)
        for share in shares_of(case.result()):
            if share.kind in (SITE, COVARIANCE):
                found[share.name] += share.variance
    noises = vocabulary.noises
    for place, name in enumerate(case.sites):
        vocabulary.noises = noises[place : place + 1]
        expected = vocabulary.covariance(result).diagonal().reshape(found[name].shape)
        torch.testing.assert_close(found[name], expected.detach(), rtol=1e-9, atol=1e-13)
