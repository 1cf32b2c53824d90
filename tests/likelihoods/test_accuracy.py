"""Likelihoods over the accuracy target: |μ/σ| ≤ 8, σ from 1e-3 to 1e2."""

import itertools

import numpy as np
import numpyro
import numpyro.distributions
import pyro
import pyro.distributions
import pytest
import torch
from pyro.distributions import GammaPoisson
from torch import distributions

import numpyro_moments
import pyro_moments
from moment_calculus import likelihoods
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods import divergences
from moment_calculus.likelihoods.families import FAMILIES
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values.propagation import Propagation
from tests import cases
from tests.cases import row_functions as functions
from tests.cases.kinds import on_numpy
from tests.cases.row_functions import density, exp, ndtr, sigmoid, softplus, times
from tests.checks.general import GENERAL, check_oracle, meetings
from tests.oracles import quadrature as oracles

RATIOS = (-8.0, -2.5, 0.0, 1.3, 8.0)
SCALES = (1e-3, 0.1, 1.0, 7.0, 100.0)
NARROW = (*SCALES[:3], 5.0)


def logistic(sign, weight=1.0):
    return lambda y, f: weight * torch.nn.functional.logsigmoid(sign * f)


def log_softplus_rate(y, f):
    """Poisson with rate softplus(f), stable below −30."""
    rate = torch.nn.functional.softplus(f)
    logs = torch.where(f < -30, f, rate.clamp(min=1e-20).log())
    return y * logs - rate - torch.lgamma(y + 1)


# Name: rule and plain function of an observation and f, the observation, the kinks, the scales,
# and 1 where the function grows exponentially.
ROWS = {
    "laplace": (
        lambda y, f: likelihoods.laplace(y, f, 0.5),
        density(distributions.Laplace, lambda f: {"loc": f, "scale": 0.5}),
        (0.7, (0.7,), SCALES, 0),
    ),
    "student": (
        lambda y, f: likelihoods.student_t(y, 3.0, f, 0.5),
        density(distributions.StudentT, lambda f: {"df": 3.0, "loc": f, "scale": 0.5}),
        (0.7, (0.7,), SCALES, 0),
    ),
    "student of a far observation": (
        lambda y, f: likelihoods.student_t(y, 3.0, f, 0.01),
        density(distributions.StudentT, lambda f: {"df": 3.0, "loc": f, "scale": 0.01}),
        (500.0, (500.0,), SCALES, 0),
    ),
    "cauchy": (
        lambda y, f: likelihoods.cauchy(y, f, 2.0),
        density(distributions.Cauchy, lambda f: {"loc": f, "scale": 2.0}),
        (-3.0, (-3.0,), SCALES, 0),
    ),
    "bernoulli one": (
        lambda y, f: likelihoods.bernoulli(y, logits=f),
        logistic(1.0),
        (1.0, (0.0,), SCALES, 0),
    ),
    "bernoulli zero": (
        lambda y, f: likelihoods.bernoulli(y, probs=sigmoid(f)),
        logistic(-1.0),
        (0.0, (0.0,), SCALES, 0),
    ),
    "probit one": (
        lambda y, f: likelihoods.bernoulli(y, probs=ndtr(f)),
        lambda y, f: torch.special.log_ndtr(f),
        (1.0, (0.0,), SCALES, 0),
    ),
    "probit zero": (
        lambda y, f: likelihoods.bernoulli(y, probs=ndtr(f)),
        lambda y, f: torch.special.log_ndtr(-f),
        (0.0, (0.0,), SCALES, 0),
    ),
    "poisson": (
        lambda y, f: likelihoods.poisson(y, exp(f)),
        density(distributions.Poisson, lambda f: {"rate": f.exp()}),
        (3.0, (0.0,), NARROW, 1),
    ),
    "poisson softplus": (
        lambda y, f: likelihoods.poisson(y, softplus(f)),
        log_softplus_rate,
        (3.0, (0.0,), SCALES, 0),
    ),
    "gamma": (
        lambda y, f: likelihoods.gamma(y, 2.0, exp(times(f, -1.0))),
        density(distributions.Gamma, lambda f: {"concentration": 2.0, "rate": (-f).exp()}),
        (0.4, (0.0,), NARROW, 1),
    ),
    "gamma poisson": (
        lambda y, f: likelihoods.gamma_poisson(y, 2.0, exp(f)),
        lambda y, f: GammaPoisson(torch.full_like(f, 2.0), f.exp(), validate_args=False).log_prob(
            y
        ),
        (3.0, (0.0,), NARROW, 0),
    ),
    "laplace scale": (
        lambda y, f: likelihoods.laplace(y, 0.0 * y, exp(f)),
        density(distributions.Laplace, lambda f: {"loc": 0.0, "scale": f.exp()}),
        (1.4, (0.0,), NARROW, 1),
    ),
    "student scale": (
        lambda y, f: likelihoods.student_t(y, 3.0, 0.0 * y, softplus(f)),
        lambda y, f: distributions.StudentT(
            3.0, 0.0, torch.nn.functional.softplus(f), validate_args=False
        ).log_prob(y),
        (1.4, (0.0,), NARROW, 0),
    ),
}


def f(mean, variance):
    return site_value("f", mean, variance, Propagation(), event_dim=0)


@pytest.mark.parametrize("name", ROWS)
def test_accuracy(name):
    """1e-6 in double and 1e-4 in single precision, of the value or of the typical size of it."""
    rule, plain, (y, kinks, scales, growth) = ROWS[name]
    grid = np.array(list(itertools.product(RATIOS, scales)))
    mean, scale = grid[:, 0] * grid[:, 1], grid[:, 1]
    function = on_numpy(lambda x: plain(torch.as_tensor(y, dtype=x.dtype), x))
    found = [
        oracles.activation_moments(function, *pair, kinks, growth)
        for pair in zip(mean, scale, strict=True)
    ]
    expected = np.array([moments["mean"] for moments in found])
    size = np.array([moments["size"] for moments in found])
    actual = rule(np.full_like(mean, y), f(mean, scale**2))
    np.testing.assert_array_less(np.abs(actual - expected), 1e-6 * np.abs(expected) + 1e-9 * size)
    single = [torch.as_tensor(array, dtype=torch.float32) for array in (mean, scale**2)]
    rounded = rule(torch.full_like(single[0], y), f(*single)).double().numpy()
    np.testing.assert_array_less(np.abs(rounded - expected), 1e-4 * np.abs(expected) + 1e-5 * size)


@pytest.mark.parametrize(
    ("value", "scale"), [(0.0, 1e-3), (0.0, 1.0), (0.0, 100.0), (9.0, 1.0), (300.0, 100.0)]
)
def test_predictive_density_of_a_sharp_likelihood(value, scale):
    """A Laplace of width 0.01 against panels around its peak: exact inside the reach of f."""
    mean, width = np.array([0.3 * scale]), 0.01
    plain = density(distributions.Laplace, lambda f: {"loc": f, "scale": width})
    actual = likelihoods.log_expectation(
        lambda y, f: -np.abs(y - f) / width - np.log(2 * width),
        np.array([value]),
        f(mean, np.array([scale**2])),
        knots=((value, 1.0), (value, width)),
    )
    edges = (value - mean[0]) / scale + oracles.offsets(width / scale / 4, 20.0)
    z, weights = oracles.normal_rule(edges, 20.0)
    densities = plain(torch.tensor(value), torch.as_tensor(mean + scale * z)).exp().numpy()
    np.testing.assert_allclose(actual, np.log(weights @ densities), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("check", "case"), meetings([check_oracle, *GENERAL], cases.LIKELIHOODS + cases.DIVERGENCES)
)
def test_property(check, case):
    check(case)


def test_predictive_variances_obey_the_law_of_total_variance():
    """Epistemic + aleatoric variance is the variance of draws y = f + scale·ε, by quadrature."""
    case = next(case for case in cases.LIKELIHOODS if case.name == "predictive_mean")
    arrays = case.example()
    out = case.operands[0].value(arrays, "out", case.propagation)
    mean, epistemic, aleatoric = (functions.predictive(part)(out) for part in range(3))
    z, weights = oracles.hermite_grid(24, 3)
    drawn = arrays[0] + np.einsum("bij,sj->sbi", arrays[1], z[:, :2])
    draws = drawn[..., 0] + 0.5 * np.exp(drawn[..., 1]) * z[:, 2:]
    moments = oracles.sample_moments(draws, weights, None)
    np.testing.assert_allclose(mean, moments["mean"], rtol=1e-10)
    np.testing.assert_allclose(epistemic + aleatoric, moments["variance"], rtol=1e-8)


@pytest.mark.parametrize("name", ["empirical_bayes_variance", "empirical_bayes_log_prior"])
def test_sets_may_span_several_axes(name):
    """A set of weights over two axes gives what the same set over one axis gives."""
    generator = np.random.default_rng(0)
    mean, variance = generator.normal(size=(2, 3)), generator.random((2, 3))
    function = getattr(divergences, name)
    wide = function(mean, variance, 1.0, 10.0, (-2, -1))
    flat = function(mean.reshape(6), variance.reshape(6), 1.0, 10.0, (-1,))
    np.testing.assert_allclose(np.squeeze(wide), np.squeeze(flat), rtol=1e-13)


@pytest.mark.parametrize(("high", "expected"), [(3.0, -np.log(4.0)), (2.9, -np.inf)])
def test_uniform_prior_of_a_site_between_two_numbers(high, expected):
    """A value between −1 and 3 is inside the first interval, and may leave the second."""
    moments = Moments(torch.zeros(2), variance=torch.ones(2))
    base = as_value(moments, "base", Propagation())
    value = scale_shift(apply(activation("sigmoid"), base), 4.0, -1.0)
    found = divergences.uniform_prior(value, torch.tensor(-1.0), torch.tensor(high))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_observation_of_zero_under_an_infinite_mean_rate():
    """0 · E[λ] is nothing, where E[λ] is beyond every number of the dtype."""
    h = as_value(Moments(torch.zeros(2), variance=torch.full((2,), 1e4)), "h", Propagation())
    found = likelihoods.exponential(torch.tensor([0.0, 1.0]), apply(activation("exp"), h))
    assert found.tolist() == [0.0, -np.inf]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_of_the_table_is_served_in_both_frameworks(family):
    frameworks = (pyro_moments, pyro.distributions), (numpyro_moments, numpyro.distributions)
    endings = ("Logits", "Probs") if family.odds else ("",)
    kinds_found = []  # some families exist in one framework only
    for front_end, family_module in frameworks:
        names = [family.name + end for end in endings]
        kinds = [getattr(family_module, name, None) for name in names]
        found = [*filter(None, kinds)] or [
            *filter(None, [getattr(family_module, family.name, None)])
        ]
        served = front_end.likelihoods.expected.EXPECTED_LOG_PROB
        assert all(any(base in served for base in kind.__mro__) for kind in found)
        kinds_found += found
    assert kinds_found
