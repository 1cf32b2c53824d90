"""Every likelihood and divergence of the case table has every property."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from moment_calculus import likelihoods
from moment_calculus.functions.table import activation
from moment_calculus.hosts.moments import Moments, as_value
from moment_calculus.likelihoods import divergences
from moment_calculus.likelihoods.categorical import draws
from moment_calculus.numerics.arrays import diagonal_matrix
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.elementwise.arithmetic import apply, scale_shift
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


def test_unknown_bound_is_refused():
    case = next(case for case in cases.LIKELIHOODS if case.name == "categorical_delta")
    scores, mean, factor = case.example()
    logits = case.operands[1].value((mean, factor), "f", case.propagation)
    with pytest.raises(ValueError, match="delta, jensen"):
        likelihoods.categorical(scores.argmax(-1), logits, bound="guess")


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_draws_of_logits_have_their_moments(covariance):
    """The noise of a cubature grid gives the moments of the draws without Monte Carlo error."""
    case = next(case for case in cases.LIKELIHOODS if case.name == "categorical_delta")
    _, mean, factor = case.example()
    logits = case.operands[1].value((mean, factor), "f", Propagation(covariance=covariance))
    z, weights = oracles.hermite_grid(3, 3)
    noise = np.broadcast_to(z[:, None, :], (len(z), *mean.shape))
    drawn = oracles.sample_moments(draws(logits, noise), weights, -1)
    exact = logits.covariance if logits.has_covariance else diagonal_matrix(logits.variance)
    np.testing.assert_allclose(drawn["mean"], mean, atol=1e-12)
    np.testing.assert_allclose(drawn["covariance"], exact, atol=3e-6)
    terms = [likelihoods.categorical_sampled(np.argmax(mean, -1), logits, n[None]) for n in noise]
    scores = torch.as_tensor(np.broadcast_to(mean, noise.shape).copy())
    plain = functions.categorical_log_density(scores, torch.as_tensor(draws(logits, noise)))
    np.testing.assert_allclose(np.stack(terms), plain.numpy(), rtol=1e-10)


def test_certain_logits_are_drawn_with_finite_gradients():
    mean, factor = torch.zeros(2, 3, requires_grad=True), torch.zeros(2, 3, 3, requires_grad=True)
    logits = as_value(Moments(mean, covariance=factor @ factor.mT), "f", Propagation())
    noise = torch.ones(1, 2, 3)
    loss = likelihoods.categorical_sampled(torch.tensor([0, 1]), logits, noise).sum()
    assert loss.item() == pytest.approx(-2 * np.log(3), rel=1e-6)
    assert all(g.isfinite().all() for g in torch.autograd.grad(loss, [mean, factor]))


def test_a_multinomial_is_a_sum_of_categorical_terms():
    case = next(case for case in cases.LIKELIHOODS if case.name == "categorical_delta")
    _, mean, factor = case.example()
    logits = case.operands[1].value((mean, factor), "f", case.propagation)
    counts = np.array([[2.0, 0.0, 1.0]] * 3)
    actual = likelihoods.multinomial(counts, logits)
    each = [likelihoods.categorical(np.full(3, k), logits) for k in range(3)]
    np.testing.assert_allclose(actual, 2 * each[0] + each[2] + np.log(3), rtol=1e-10)


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
