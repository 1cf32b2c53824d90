"""Pairs of activations without closed form: the series, and quadrature where it is not enough."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from moment_calculus.functions.pairs import common_factor
from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.pairs.completion import Operand, alike, function_covariance
from moment_calculus.functions.table import ELU, Integrated, LeakyReLU, Sigmoid
from tests.cases.kinds import on_numpy
from tests.oracles import quadrature as oracles


@dataclass(frozen=True)
class Opaque(LeakyReLU):
    """A leaky ReLU that does not know its pairs."""

    def pair_covariance(self, mean, variance, covariance):
        return NotImplemented


@dataclass(frozen=True)
class OpaqueSigmoid(Sigmoid):
    """A sigmoid that knows no function like it."""

    def surrogate(self, single):
        return None


def gaussians(count=20, size=6, rank=3, seed=0):
    """Means and covariances of low rank, with scales from 1e-3 to 1e2 and |μ/σ| ≤ 8."""
    generator = np.random.default_rng(seed)
    factor = generator.normal(size=(count, size, rank))
    factor /= np.linalg.norm(factor, axis=-1, keepdims=True)
    factor *= 10 ** generator.uniform(-3, 2, (count, size, 1))
    mean = np.linalg.norm(factor, axis=-1) * generator.uniform(-8, 8, (count, size))
    return mean, factor @ np.swapaxes(factor, -1, -2)


ORDER = 16  # terms of the series to begin with
OFF = ~np.eye(6, dtype=bool)


@pytest.mark.parametrize("slope", [-0.5, 0.0, 0.1])
def test_a_function_that_hides_its_closed_form_finds_it(slope):
    mean, covariance = gaussians()
    true = pairs.covariance(LeakyReLU(slope), mean, covariance)
    ours = pairs.covariance(Opaque(slope), mean, covariance)
    np.testing.assert_array_equal(ours, np.swapaxes(ours, -1, -2))
    np.testing.assert_allclose(ours[:, OFF], true[:, OFF], rtol=1e-6)
    deviation = np.sqrt(np.diagonal(true, axis1=1, axis2=2))
    size = deviation[:, :, None] * deviation[:, None, :]
    single = pairs.covariance(Opaque(slope), *map(np.float32, (mean, covariance)))
    assert single.dtype == np.float32
    assert np.max(np.abs(single - true) / size) < 1e-4


@pytest.mark.parametrize("rho", [0.9, -0.99, 1.0, -1.0])
def test_equal_and_opposite_variables(rho):
    mean, scale = np.array([0.7, 0.7 * np.sign(rho)]), np.array([2.0, 2.0])
    covariance = np.outer(scale, scale) * [[1, rho], [rho, 1]]
    result = pairs.covariance(Opaque(0.1), mean, covariance)[0, 1]
    if abs(rho) < 1:
        true = oracles.activation_covariance(Opaque(0.1), mean, scale, rho, (0.0,))
    else:  # f(−x) = −f(x) for the function of slopes 1 and 0.1 only up to 0.9 |x|
        z, weights = oracles.normal_rule(np.array([-mean[0] / scale[0]]), 20.0)
        first, second = (
            Opaque(0.1)(m + s * z) for m, s in zip(mean, (2.0, 2.0 * rho), strict=True)
        )
        true = weights @ ((first - weights @ first) * (second - weights @ second))
    assert result == pytest.approx(true, rel=1e-7)


def test_positive_semi_definite_and_independent_of_the_batch():
    mean, covariance = gaussians(count=8, rank=2, seed=1)
    for dtype in (np.float64, np.float32):
        arrays = mean.astype(dtype), covariance.astype(dtype)
        result = pairs.covariance(Opaque(0.1), *arrays)
        values = np.linalg.eigvalsh(result.astype(np.float64))
        assert np.all(values[:, 0] >= -1e-6 * values[:, -1])
        alone = pairs.covariance(Opaque(0.1), arrays[0][3], arrays[1][3])
        np.testing.assert_allclose(result[3], alone, rtol=10 * np.finfo(dtype).eps)


def test_single_precision_is_positive_semi_definite_at_full_correlation():
    generator = np.random.default_rng(4)
    factor = generator.normal(size=(30, 1))
    mean, covariance = 0.3 * generator.normal(size=30), factor @ factor.T
    result = pairs.covariance(ELU(), mean.astype(np.float32), covariance.astype(np.float32))
    values = np.linalg.eigvalsh(result.astype(np.float64))
    assert values[0] >= -5e-7 * values[-1]  # pairs of the series beside integrated ones


def test_gradients_of_integrated_pairs():
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(2, 3, generator=generator, dtype=torch.double).requires_grad_()
    factor = torch.randn(2, 3, 2, generator=generator, dtype=torch.double).requires_grad_()

    def slopes(activation):
        result = pairs.covariance(activation, mean, factor @ factor.mT)
        return torch.autograd.grad((result**2).sum(), (mean, factor))

    assert torch.autograd.gradcheck(
        lambda m, f: pairs.covariance(Opaque(0.1), m, f @ f.mT), (mean, factor), atol=1e-5
    )
    for ours, true in zip(slopes(Opaque(0.1)), slopes(LeakyReLU(0.1)), strict=True):
        torch.testing.assert_close(ours, true, rtol=1e-5, atol=1e-6)


def test_a_parameter_gets_its_gradient_through_the_chunks(monkeypatch):
    monkeypatch.setattr(common_factor, "CHUNK", 4096)
    sharpness = torch.tensor(2.0, dtype=torch.double, requires_grad=True)
    mean, covariance = (torch.as_tensor(part) for part in gaussians(count=2, rank=1, seed=2))
    covariance = 4 * covariance / covariance.diagonal(0, -2, -1).amax()

    def total():
        activation = Integrated(lambda x: torch.tanh(sharpness * x) * x)
        return pairs.covariance(activation, mean, covariance).sum()

    (slope,) = torch.autograd.grad(total(), sharpness)
    with torch.no_grad():
        ends = []
        for shift in (1e-5, -1e-5):
            sharpness += shift
            ends.append(total())
            sharpness -= shift
    assert slope == pytest.approx(float(ends[0] - ends[1]) / 2e-5, rel=1e-5)


def test_extreme_arguments_stay_finite_in_single_precision():
    ratios, scales = torch.tensor([-1e4, -8, 0, 8, 1e4]), torch.tensor([1e-6, 1e-3, 1, 1e3])
    ratio, scale = (part.reshape(-1) for part in torch.meshgrid(ratios, scales, indexing="ij"))
    for rho in (-1.0, 0.9):
        shared = torch.where(torch.eye(20) > 0, torch.ones(()), torch.tensor(rho))
        for activation in (Opaque(0.1), Integrated(torch.tanh)):
            mean = (ratio * scale).requires_grad_()
            covariance = (scale[:, None] * scale * shared).requires_grad_()
            result = pairs.covariance(activation, mean, covariance)
            gradients = torch.autograd.grad(result.sum(), (mean, covariance))
            assert all(bool(part.isfinite().all()) for part in (result, *gradients))


def test_functions_that_differ_between_components_keep_the_series():
    slopes = np.array([0.1, 0.5, 2.0])
    activation = Integrated(lambda x: np.tanh(slopes * x))
    mean, covariance = (
        np.zeros(3),
        9 * np.array([[1, 0.99, 0.99], [0.99, 1, 0.99], [0.99, 0.99, 1]]),
    )
    result = pairs.covariance(activation, mean, covariance)
    series = pairs.mehler(activation, mean, covariance, order=32)
    np.testing.assert_array_equal(result[0, 1:], series[0, 1:])


def test_a_traced_series_has_twice_the_order():
    jax = pytest.importorskip("jax")
    mean, covariance = gaussians(count=2, seed=3)
    expected = pairs.mehler(Opaque(0.1), mean, covariance, order=32)
    with jax.enable_x64(True):
        traced = jax.jit(lambda *arrays: pairs.covariance(Opaque(0.1), *arrays))
        np.testing.assert_allclose(traced(mean, covariance)[:, OFF], expected[:, OFF], rtol=1e-9)
        eager = pairs.covariance(Opaque(0.1), *map(jax.numpy.asarray, (mean, covariance)))
        exact = pairs.covariance(LeakyReLU(0.1), mean, covariance)
        np.testing.assert_allclose(eager[:, OFF], exact[:, OFF], rtol=1e-6)


# ---------------------------------------------------------------------------------------------
# Two different functions


def crossed(first, second, mean, scale, rho):
    """Cov(f(x), g(y)) by quadrature over x and the part of y that is independent of it."""
    root = np.sqrt(1 - rho**2)
    kinks = np.concatenate([-mean[:1] / scale[0], -mean[1:] / (scale[1] * rho)])
    graded = kinks[:, None] + oracles.offsets(root / 2, 14.0)
    z, weights = oracles.normal_rule(graded.reshape(-1), 14.0)
    centre = mean[1] + scale[1] * rho * z
    inner = oracles.offsets(0.05, 14.0) - centre[:, None] / (scale[1] * root)
    e, masses = oracles.normal_rule(inner, 14.0)
    right = np.sum(masses * second(centre[:, None] + scale[1] * root * e), axis=-1)
    left = first(mean[0] + scale[0] * z)
    return weights @ ((left - weights @ left) * (right - weights @ right))


@pytest.mark.parametrize("rho", [-0.999, -0.5, 0.2, 0.95])
def test_cross_covariance_of_two_functions(rho):
    relu, sigmoid = LeakyReLU(0.1), OpaqueSigmoid()
    mean, scale = np.array([0.5, -1.0]), np.array([1.5, 4.0])
    plain = relu, on_numpy(torch.sigmoid)
    true = crossed(*plain, mean, scale, rho)
    shared = np.array(rho * scale.prod())
    x = Operand(relu, mean[:1], scale[:1] ** 2)
    y = Operand(sigmoid, mean[1:], scale[1:] ** 2)
    ours = function_covariance(x, y, shared[None, None], ORDER)
    assert ours.shape == (1, 1)
    assert ours[0, 0] == pytest.approx(true, rel=1e-6)
    each = function_covariance(x, y, shared[None], ORDER, alike)
    assert each[0] == pytest.approx(true, rel=1e-6)


def test_cross_covariances_fit_together():
    mean, covariance = gaussians(count=3, rank=2, seed=5)
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    one, two = Opaque(0.1), LeakyReLU(0.1)
    x, y = Operand(one, mean, variance), Operand(two, mean, variance)
    matrix = function_covariance(x, y, covariance, ORDER)
    np.testing.assert_allclose(
        matrix[:, OFF], pairs.covariance(two, mean, covariance)[:, OFF], rtol=1e-6
    )
    np.testing.assert_allclose(
        np.diagonal(matrix, axis1=-2, axis2=-1), two.moments(mean, variance)[1], rtol=1e-6
    )
    start = Operand(two, mean[:, :2], variance[:, :2])
    part = function_covariance(x, start, covariance[..., :2], ORDER)
    np.testing.assert_allclose(part, matrix[..., :2], rtol=1e-12)
