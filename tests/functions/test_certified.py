"""Mehler's series cut by its certificate, against closed forms and the series in full."""

import numpy as np
import pytest
import torch

from moment_calculus.functions.families.logistic import Tanh
from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.pairs import mehler
from moment_calculus.functions.table import activation

NAMES = ["relu", "leaky_relu", "heaviside", "gelu", "elu", "tanh", "softplus"]
CLOSED = ["relu", "leaky_relu", "gelu"]
SIZE, BATCH = 24, 9
rng = np.random.default_rng(17)


def gaussian(strength, spread=1.0):
    """Means, and covariances with correlations of about a strength."""
    factor = rng.normal(size=(BATCH, SIZE, 3)) * strength**0.5
    covariance = factor @ np.swapaxes(factor, -1, -2) + 3 * (1 - strength) * np.eye(SIZE)
    return spread * rng.normal(size=(BATCH, SIZE)), spread**2 * covariance


def in_full(function, mean, covariance, order=32):
    """Without a look at the numbers."""
    found = [
        pairs.covariance(function, centre, matrix, order=order)
        for centre, matrix in zip(mean, covariance, strict=True)
    ]
    return np.stack(found) if isinstance(mean, np.ndarray) else torch.stack(found)


def clipped_correlation(error, function, mean, covariance):
    deviation = function.moments(mean, np.diagonal(covariance, axis1=-2, axis2=-1))[1] ** 0.5
    return np.abs(error / (deviation[..., :, None] * deviation[..., None, :])).max()


def watched(monkeypatch):
    """The cuts that are made."""
    found, original = [], mehler.cheapest_truncation

    def cut(*arguments):
        found.append(original(*arguments))
        return found[-1]

    monkeypatch.setattr(mehler, "cheapest_truncation", cut)
    return found


@pytest.mark.parametrize("strength", [0.02, 0.4])
@pytest.mark.parametrize("name", NAMES)
def test_as_without_a_look(name, strength, monkeypatch):
    function, found = activation(name), watched(monkeypatch)
    mean, covariance = gaussian(strength)
    result = pairs.covariance(function, mean, covariance)
    assert found[0] is not None
    error = clipped_correlation(
        result - in_full(function, mean, covariance), function, mean, covariance
    )
    assert error < 2e-9  # what the mixture for the logistic function leaves, and the closed forms


@pytest.mark.parametrize("thresholds", [(-6.0, -1.0), (-3.0, 3.0), (2.0, 7.0)])
@pytest.mark.parametrize("name", CLOSED)
def test_units_that_are_off_or_on_for_almost_all_x(name, thresholds, monkeypatch):
    function, found = activation(name), watched(monkeypatch)
    _, covariance = gaussian(0.15)
    scale = np.diagonal(covariance, axis1=-2, axis2=-1) ** 0.5
    mean = scale * rng.uniform(*thresholds, size=(BATCH, SIZE))
    result = pairs.covariance(function, mean, covariance)
    assert found[0] is not None
    error = clipped_correlation(
        result - in_full(function, mean, covariance), function, mean, covariance
    )
    assert error < 1e-8
    assert np.linalg.eigvalsh(result).min() >= 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["relu", "gelu", "tanh"])
def test_few_pairs_of_large_correlation_are_computed_apart(name, dtype, monkeypatch):
    function, found = activation(name), watched(monkeypatch)
    mean, covariance = gaussian(0.02)
    deviation = np.diagonal(covariance, axis1=-2, axis2=-1) ** 0.5
    covariance[:, 0, 1] = covariance[:, 1, 0] = -0.97 * deviation[:, 0] * deviation[:, 1]
    arrays = [torch.tensor(part, dtype=dtype) for part in (mean, covariance)]
    result = pairs.covariance(function, *arrays)
    assert (found[0].bound < 0.9) == (name != "tanh")  # which has no closed form
    expected = in_full(function, *(part.double() for part in arrays))
    error = clipped_correlation((result - expected).numpy(), function, mean, covariance)
    assert error < (2e-8 if dtype is torch.float64 else 1e-5)


@pytest.mark.parametrize("strong", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_without_a_look(name, strong):
    function = activation(name)
    mean, covariance = gaussian(0.1)
    if strong:
        covariance[:, 0, 1] = covariance[:, 1, 0] = 0.8 * covariance[:, 0, 0]
    weights = torch.tensor(rng.normal(size=(BATCH, SIZE, SIZE)))

    def gradients(compute):
        factor = torch.linalg.cholesky(torch.tensor(covariance) + torch.eye(SIZE))
        inputs = [torch.tensor(mean).requires_grad_(), factor.requires_grad_()]
        value = (weights * compute(function, inputs[0], factor @ factor.mT)).sum()
        return torch.autograd.grad(value, inputs)

    for ours, theirs in zip(gradients(pairs.covariance), gradients(in_full), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=3e-8)


def test_gradient_of_the_gradient():
    mean, covariance = (torch.tensor(part) for part in gaussian(0.1))
    function, direction = activation("relu"), torch.tensor(rng.normal(size=(BATCH, SIZE)))

    def bend(compute):
        centre = mean.clone().requires_grad_()
        value = compute(function, centre, covariance).square().sum()
        (slope,) = torch.autograd.grad(value, centre, create_graph=True)
        return torch.autograd.grad((slope * direction).sum(), centre)[0]

    torch.testing.assert_close(bend(pairs.covariance), bend(in_full), rtol=1e-7, atol=1e-9)


def test_transforms_and_forward_derivatives_take_the_general_rule():
    mean, covariance = (torch.tensor(part) for part in gaussian(0.1))
    function, tangent = activation("relu"), torch.tensor(rng.normal(size=(BATCH, SIZE)))
    compute = lambda centre: pairs.covariance(function, centre, covariance)  # noqa: E731
    _, slope = torch.func.jvp(compute, (mean,), (tangent,))
    step = 1e-5
    expected = (compute(mean + step * tangent) - compute(mean - step * tangent)) / (2 * step)
    torch.testing.assert_close(slope, expected, rtol=1e-5, atol=1e-7)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(mean, tangent)
        found = torch.autograd.forward_ad.unpack_dual(compute(dual)).tangent
    torch.testing.assert_close(found, slope)


@pytest.mark.parametrize("size", [16, 300])
def test_pieces(size):
    """Several matrices in a piece, or several pieces of a matrix."""
    matrices = rng.uniform(-0.2, 0.2, size=(20 if size == 16 else 2, size, size))
    covariance = (matrices + np.swapaxes(matrices, -1, -2)) / 2
    each = np.arange(size)
    covariance[:, each, each] = 1
    mean, function = rng.normal(size=covariance.shape[:2]), activation("relu")
    result = pairs.covariance(function, mean, covariance)
    rows = slice(0, 40)
    expected = in_full(function, mean[:, rows], covariance[:, rows, rows])
    np.testing.assert_allclose(result[:, rows, rows], expected, atol=1e-8)


def test_coefficients_are_computed_once_where_no_share_lets_few_terms_be_enough(monkeypatch):
    mean, covariance = gaussian(0.95)
    orders, whole = [], Tanh.hermite

    def counted(self, mean, variance, order):
        orders.append(order)
        return whole(self, mean, variance, order)

    monkeypatch.setattr(Tanh, "hermite", counted)
    pairs.covariance(Tanh(), mean, covariance)
    assert orders == [34]


def test_numbers_that_are_none_stay_visible():
    mean, covariance = gaussian(0.1)
    covariance[0, 0, 1] = covariance[0, 1, 0] = np.nan
    result = pairs.covariance(activation("relu"), mean, covariance)
    assert np.isfinite(result[1:]).all()
    assert np.isnan(result[0, 0, 1])


def test_no_variance_and_no_correlation():
    mean = rng.normal(size=(BATCH, SIZE))
    covariance = np.zeros((BATCH, SIZE, SIZE))
    each = np.arange(SIZE // 2)
    covariance[:, each, each] = 2.0
    result = pairs.covariance(activation("relu"), mean, covariance)
    off = result.copy()
    off[:, each, each] = 0
    np.testing.assert_array_equal(off, 0)
    assert (result[:, each, each] > 0).all()
