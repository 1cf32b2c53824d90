"""Every likelihood and divergence of the case table has every property."""

from __future__ import annotations

import numpy as np
import numpyro
import numpyro.distributions
import pyro
import pyro.distributions
import pytest
import torch

import numpyro_moments
import pyro_moments
from moment_calculus import likelihoods
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods import divergences
from moment_calculus.likelihoods.families import FAMILIES
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values.propagation import Propagation
from tests import cases
from tests.cases import row_functions as functions
from tests.checks.general import GENERAL, check_oracle, meetings
from tests.oracles import quadrature as oracles


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
    for front_end, distributions in frameworks:
        names = [family.name + end for end in endings]
        kinds = [getattr(distributions, name, None) for name in names]
        kinds = list(filter(None, kinds)) or [getattr(distributions, family.name)]
        served = front_end.likelihoods.expected.EXPECTED_LOG_PROB
        assert all(any(base in served for base in kind.__mro__) for kind in kinds)
