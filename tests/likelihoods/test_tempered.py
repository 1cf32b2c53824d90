"""Means of powers of densities: every row has every property; classes; small powers."""

import jax
import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from moment_calculus.likelihoods.multivariate import log_mean_of_normal_powers
from moment_calculus.likelihoods.trials import tempered_gamma, tempered_poisson
from moment_calculus.numerics.quadrature import log_mean_exp
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values.propagation import Propagation
from tests import cases
from tests.cases.row_functions import exp
from tests.checks.general import GENERAL, check_oracle, meetings
from tests.oracles import quadrature as oracles

POWERS = (0.5, 1.0)


@pytest.mark.parametrize(("check", "case"), meetings([check_oracle, *GENERAL], cases.TEMPERED))
def test_property(check, case):
    check(case)


# ---------------------------------------------------------------------------------------------
# Dependent Normals


def test_equal_powers_are_those_of_a_multivariate_normal_with_more_noise():
    """log N(y; m, C + S/a) + ½ (1 − a) log |2πS| − ½ d log a."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(4, 4, generator=generator, dtype=torch.double)
    residual = torch.randn(4, generator=generator, dtype=torch.double)
    scale, power = torch.tensor([0.5, 1.0, 2.0, 0.3], dtype=torch.double), 0.4
    actual = log_mean_of_normal_powers(residual, root @ root.mT, scale, power)
    noise = torch.diag(scale**2)
    wide = torch.distributions.MultivariateNormal(residual * 0, root @ root.mT + noise / power)
    constant = (1 - power) / 2 * torch.logdet(2 * torch.pi * noise) - 2 * np.log(power)
    torch.testing.assert_close(actual, wide.log_prob(residual) + constant, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_has_no_weight_does_not_count(dtype):
    """Neither its value, which may be NaN, nor its covariance with the others; nor its gradient."""
    root = torch.tensor([[1.0, 0.0], [0.5, 0.8]], dtype=dtype).requires_grad_()
    residual, weights = torch.tensor([0.7, torch.nan]), torch.tensor([0.5, 0.0])
    actual = log_mean_of_normal_powers(residual.to(dtype), root @ root.mT, 0.6, weights.to(dtype))
    alone = log_mean_of_normal_powers(residual[:1].to(dtype), (root @ root.mT)[:1, :1], 0.6, 0.5)
    torch.testing.assert_close(actual, alone)
    (gradient,) = torch.autograd.grad(actual, root)
    assert gradient.isfinite().all()
    assert (gradient[1] == 0).all()


@pytest.mark.parametrize("power", [1e-6, 1e-20])
def test_small_powers_in_single_precision(power):
    """They tend to the sum of expected log densities, without cancellation, in single precision."""
    root = np.array([[1.0, 0.0], [0.9, 0.3]], dtype=np.float32) * np.float32(2.0)
    residual, scale = np.array([0.7, -0.4], dtype=np.float32), np.float32(0.6)
    covariance = root @ root.T
    actual = log_mean_of_normal_powers(residual, covariance, scale, power) / power
    squares = (residual**2 + np.diagonal(covariance)) / scale**2
    expected = -0.5 * np.sum(squares + np.log(2 * np.pi * scale**2))
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


@pytest.mark.parametrize("size", [1e2, 1e6, 1e12])
def test_large_covariances_of_low_rank_stay_finite_in_single_precision(size):
    generator = torch.Generator().manual_seed(0)
    root = (size * torch.randn(8, 2, generator=generator)).requires_grad_()
    with_double = log_mean_of_normal_powers(torch.ones(8), root @ root.mT, 0.1, 0.5)
    single = log_mean_of_normal_powers(
        np.ones(8, np.float32), (root @ root.mT).detach().numpy(), 0.1, 0.5
    )
    (gradient,) = torch.autograd.grad(with_double, root)
    assert with_double.isfinite()
    assert np.isfinite(single)
    assert gradient.isfinite().all()


# ---------------------------------------------------------------------------------------------
# Small powers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("power", [1e-6, 0.3, 1.0])
def test_mean_of_exponentials_in_either_branch(dtype, spread, power):
    generator = np.random.default_rng(0)
    values = (5 + spread * generator.normal(size=(400, 2))).astype(dtype)
    weights = generator.random((400, 1)).astype(dtype)
    actual = log_mean_exp(dtype(power) * values, weights) / power
    shares = weights.astype(float) / weights.astype(float).sum()
    exact = logsumexp(power * values.astype(float), b=shares, axis=0) / power
    np.testing.assert_allclose(actual, exact, rtol=2e-5 if dtype is np.float32 else 1e-9)


@pytest.mark.parametrize("case", cases.TEMPERED, ids=lambda case: case.name)
def test_a_power_near_zero_gives_the_expected_log_density(case):
    """By the derivative at zero, ½ Var[log p], and no more."""
    arrays = case.example()
    sizes = [case._scalars(operand) for operand in case.operands]
    grid = oracles.narrow_grid if case.kinked else oracles.hermite_grid
    z, weights = grid(case.nodes, sum(sizes))
    samples = case.samples(arrays, z, sizes)
    mean = np.tensordot(weights, samples, 1)
    slope = 0.5 * np.tensordot(weights, (samples - mean) ** 2, 1)
    actual = case.at_power(1e-6).apply(arrays)
    np.testing.assert_allclose(actual, mean + 1e-6 * slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [1e-6, 0.5, 1.0])
def test_gradients_of_rates_beyond_every_number_are_finite(power, dtype):
    mean = torch.tensor([0.0, 3.0, -100.0], dtype=dtype, requires_grad=True)
    variance = torch.tensor([1e4, 50.0, 1e4], dtype=dtype, requires_grad=True)
    f = as_value(Moments(mean, variance=variance), "f", Propagation())
    y = torch.tensor([0.0, 2.0, 5.0], dtype=dtype)
    for found in (tempered_poisson(power, y, exp(f)), of_gamma(power, 1 + y, exp(f))):
        gradients = torch.autograd.grad(found.sum(), [mean, variance], retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)


def of_gamma(power, value, rate):
    return tempered_gamma(power, value, 2.0, rate)


def test_weights_that_underflow_in_single_precision_leave_means_finite():
    weights = np.zeros((3, 2), np.float32)
    weights[0] = 0.5  # a whole row of nodes has weights of zero
    values = np.array([[0.5, -4.0], [3.0, 4.0], [-2.0, 90.0]], np.float32)
    expected = np.log(0.5 * (np.exp(0.5) + np.exp(-4.0)))
    np.testing.assert_allclose(log_mean_exp(values, weights, 2), expected, rtol=1e-6)
    traced = jax.jit(lambda v, w: log_mean_exp(v, w, 2))(values, weights)
    np.testing.assert_allclose(traced, expected, rtol=1e-6)
