"""Mehler's series: its stated errors, the same under a tracer, and for two functions."""

import numpy as np
import pytest
import torch

from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.pairs.mehler import Operand, elementwise_product, function_covariance
from moment_calculus.functions.table import Integrated, LeakyReLU, activation
from moment_calculus.numerics import normal


def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(x / 2)


def density(x, mean, scale):
    return np.exp(-0.5 * ((x - mean) / scale) ** 2) / (np.sqrt(2 * np.pi) * scale)


def legendre(edges):
    """Nodes and weights of 12 points on each panel between sorted edges."""
    points, weights = np.polynomial.legendre.leggauss(12)
    edges = np.unique(edges)
    half = np.diff(edges)[:, None] / 2
    return ((edges[:-1, None] + half) + half * points).ravel(), (half * weights).ravel()


def sigmoid_means(mean, scale):
    """E[S(x)] for x ~ N(mean, scale²), many means: panels split at 0, or Gauss–Hermite."""
    if scale < 0.6:
        points, weights = np.polynomial.hermite_e.hermegauss(80)
        return sigmoid(mean[:, None] + scale * points) @ (weights / weights.sum())
    points, weights = legendre(np.linspace(-40, 40, 61))
    inside = density(points, mean[:, None], scale) @ (weights * sigmoid(points))
    return inside + normal.cdf((mean - 40) / scale)


def sigmoid_covariance(mean, scale, rho):
    """Cov(S(x), S(y)) by nested quadrature with panels that narrow towards x = 0 and E[y|x] = 0."""
    rest = scale[1] * np.sqrt((1 - rho) * (1 + rho))
    slope = rho * scale[1]
    kinks = np.geomspace(0.5, 2000, 22) * np.array([[-1], [1]])
    towards = ((kinks - mean[0]) / scale[0], (max(rest, 1) * kinks - mean[1]) / slope)
    centres = (-mean[0] / scale[0], -mean[1] / slope)
    edges = [np.linspace(-9, 9, 25), *map(np.ravel, towards), centres]
    z, weights = legendre(np.clip(np.concatenate(edges), -9, 9))
    weights = weights * density(z, 0, 1)
    first = sigmoid(mean[0] + scale[0] * z)
    second = sigmoid_means(mean[1] + slope * z, rest)
    return float(weights @ ((first - weights @ first) * (second - weights @ second)))


RATIOS = [(0.0, 0.0), (2.0, 2.0), (-2.0, 2.0), (1.0, -0.3), (-4.0, -4.5)]


def sigmoid_cases(scales, rhos):
    """Means, covariances and true covariances of pairs, on one batch axis."""
    scale, mean, rho = (
        np.array(column)
        for column in zip(
            *[
                ((s, s * f), (s * a, s * f * b), r)
                for s in scales
                for r in rhos
                for a, b in RATIOS
                for f in (1.0, 0.4)
            ],
            strict=True,
        )
    )
    true = np.array([sigmoid_covariance(*case) for case in zip(mean, scale, rho, strict=True)])
    covariance = scale[:, :, None] * scale[:, None, :]
    covariance[:, [0, 1], [1, 0]] *= rho[:, None]
    return mean, covariance, true


# Of the series of a sigmoid, in standard deviations: |ρ| ≤ 0.6, |ρ| ≤ 0.9 and |ρ| ≤ 1.
STATED = {
    0.3: (1e-8, 1e-8, 1e-8),
    1.0: (1e-8, 1e-8, 1e-8),
    2.0: (1e-8, 2e-8, 3e-7),
    3.0: (2e-8, 1e-6, 5e-5),
    10.0: (1e-8, 6e-4, 4e-2),
    100.0: (1e-8, 1e-3, 1e-1),
}


@pytest.mark.parametrize("scale", STATED)
def test_logistic_pairs_have_the_stated_error(scale):
    for most, rhos in zip(
        STATED[scale], ([-0.5, 0.3, 0.6], [-0.9, 0.9], [-0.99, 0.99, 0.999]), strict=True
    ):
        mean, covariance, true = sigmoid_cases([scale], rhos)
        result = pairs.covariance(activation("sigmoid"), mean, covariance)
        error = np.abs(result[:, 0, 1] - true) / np.sqrt(result[:, 0, 0] * result[:, 1, 1])
        assert error.max() <= most
        scaled = pairs.covariance(activation("tanh"), mean / 2, covariance / 4)  # 2 S(2x) − 1
        np.testing.assert_allclose(scaled, 4 * result, atol=1e-12)


def test_the_series_is_the_same_under_a_tracer():
    jax = pytest.importorskip("jax")
    function = activation("sigmoid")
    generator = np.random.default_rng(11)
    mean, factor = 3 * generator.normal(size=(2, 6)), 3 * generator.normal(size=(2, 6, 6))
    covariance = factor @ np.swapaxes(factor, -1, -2)
    expected = pairs.covariance(function, mean, covariance)
    with jax.enable_x64(True):
        traced = jax.jit(lambda *arrays: pairs.covariance(function, *arrays))
        np.testing.assert_allclose(traced(mean, covariance), expected, atol=1e-12)
    arrays = torch.as_tensor(mean), torch.as_tensor(covariance)
    result = torch.func.vmap(lambda *parts: pairs.covariance(function, *parts))(*arrays)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("rho", [-0.8, -0.5, 0.2, 0.7])
def test_covariance_of_two_functions(rho):
    """Of a rectifier and a sigmoid, by quadrature over x and the part of y that x leaves."""
    mean, scale = np.array([0.5, -1.0]), np.array([1.5, 1.2])
    root = np.sqrt(1 - rho**2)
    z, weights = legendre(np.concatenate([np.linspace(-12, 12, 60), [-mean[0] / scale[0]]]))
    e, masses = legendre(np.linspace(-12, 12, 60))
    weights, masses = weights * density(z, 0, 1), masses * density(e, 0, 1)
    right = sigmoid(mean[1] + scale[1] * (rho * z[:, None] + root * e)) @ masses
    relu = LeakyReLU(0.1)
    left = relu(mean[0] + scale[0] * z)
    true = weights @ ((left - weights @ left) * (right - weights @ right))
    x = Operand(relu, mean[:1], scale[:1] ** 2)
    y = Operand(activation("sigmoid"), mean[1:], scale[1:] ** 2)
    shared = np.array(rho * scale.prod())
    matrix = function_covariance(x, y, shared[None, None], pairs.ORDER)
    assert matrix.shape == (1, 1)
    assert matrix[0, 0] == pytest.approx(true, rel=1e-6)
    assert function_covariance(x, y, shared[None], pairs.ORDER, elementwise_product) == matrix[0]


def test_sine_and_cosine_meet_in_closed_form():
    mean, variance, rho = np.array([0.4, -1.0]), np.array([0.5, 0.8]), np.array([-0.9, 0.6])
    x, y = (Operand(activation(name), mean, variance) for name in ("sin", "cos"))
    hidden = Operand(Integrated(np.cos, (0.0,)), mean, variance)
    covariance = rho * variance
    closed = function_covariance(x, y, covariance, 1, elementwise_product)
    series = function_covariance(x, hidden, covariance, 30, elementwise_product)
    np.testing.assert_allclose(closed, series, rtol=1e-9)


def test_extreme_arguments_stay_finite_in_single_precision():
    ratios, scales = torch.tensor([-1e4, -8, 0, 8, 1e4]), torch.tensor([1e-6, 1e-3, 1, 1e3])
    ratio, scale = (part.reshape(-1) for part in torch.meshgrid(ratios, scales, indexing="ij"))
    for rho in (-1.0, 0.9):
        shared = torch.where(torch.eye(20) > 0, torch.ones(()), torch.tensor(rho))
        mean = (ratio * scale).requires_grad_()
        covariance = (scale[:, None] * scale * shared).requires_grad_()
        result = pairs.covariance(Integrated(torch.tanh), mean, covariance)
        gradients = torch.autograd.grad(result.sum(), (mean, covariance))
        assert all(bool(part.isfinite().all()) for part in (result, *gradients))
