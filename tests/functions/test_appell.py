"""Mehler's series with derivatives in closed form, against the differentiated series."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.pairs import mehler
from moment_calculus.functions.pairs.mehler import Operand, elementwise_product, function_covariance
from moment_calculus.functions.table import ACTIVATIONS, activation
from moment_calculus.numerics.arrays import outer
from tests.checks.jaxprs import by_numpy

ORDER = 24
PAIRS = [("tanh", "tanh"), ("sigmoid", "softplus"), ("softsign", "tanh")]
NAMES = [name for name in ACTIVATIONS if name != "threshold" and activation(name).appell]
rng = np.random.default_rng(5)
MEANS, FACTOR = rng.normal(size=(2, 3, 4)), 0.4 * rng.normal(size=(3, 8, 8))
COVARIANCE = FACTOR @ np.swapaxes(FACTOR, -1, -2) + 0.1 * np.eye(8)


def moments():
    """Means and variances of x and of y, and their covariance."""
    variance = np.diagonal(COVARIANCE, axis1=-2, axis2=-1)
    return MEANS[0], variance[:, :4], MEANS[1], variance[:, 4:], COVARIANCE[:, :4, 4:]


def differentiated(names, combine, first, one, second, other, covariance):
    """The series with its terms differentiated one by one."""
    size = combine(one**0.5, other**0.5)
    coefficients = [
        activation(name).hermite(mean, variance, ORDER)
        for name, mean, variance in zip(names, (first, second), (one, other), strict=True)
    ]
    return mehler.series(*coefficients, covariance / size, combine)


def closed(names, combine, first, one, second, other, covariance):
    operands = (
        Operand(activation(names[0]), first, one),
        Operand(activation(names[1]), second, other),
    )
    return function_covariance(*operands, covariance, ORDER, combine)


@pytest.mark.parametrize("name", NAMES)
def test_coefficients_are_derivatives_of_each_other(name):
    """∂g_n/∂μ = √(n+1) g_{n+1}/σ, and 2v ∂g_n/∂v = n g_n + √((n+1)(n+2)) g_{n+2}."""
    mean, variance = (
        torch.tensor(part, requires_grad=True) for part in ([-1.3, 0.2, 2.1], [0.04, 0.5, 1.7])
    )
    found = activation(name).hermite(mean, variance, 6)
    for n in range(1, 5):
        by_mean, by_variance = torch.autograd.grad(
            found[n - 1].sum(), (mean, variance), retain_graph=True
        )
        next_one, next_two = (n + 1) ** 0.5 * found[n], ((n + 1) * (n + 2)) ** 0.5 * found[n + 1]
        torch.testing.assert_close(by_mean, next_one / variance**0.5, rtol=1e-5, atol=1e-6)
        expected = (n * found[n - 1] + next_two) / (2 * variance)
        # the logistic series of the third derivative has an error of 4e-6 in single precision
        torch.testing.assert_close(by_variance, expected, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("combine", [outer, elementwise_product])
@pytest.mark.parametrize(
    ("names", "framework"),
    [*((names, "torch") for names in PAIRS), (PAIRS[0], "jax")],
    ids=lambda part: part if isinstance(part, str) else "-".join(part),
)
def test_value_and_gradients_are_those_of_the_differentiated_series(names, combine, framework):
    arrays = moments()
    if combine is elementwise_product:
        arrays = (*arrays[:4], np.diagonal(arrays[4], axis1=-2, axis2=-1))
    weights = rng.normal(size=arrays[4].shape)
    both = [
        _with_gradients(
            lambda *parts, rule=rule: rule(names, combine, *parts), arrays, weights, framework
        )
        for rule in (closed, differentiated)
    ]
    for ours, exact in zip(*both, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=2e-5, atol=2e-6)


def _with_gradients(rule, arrays, weights, framework):
    if framework == "torch":
        leaves = [torch.tensor(part, requires_grad=True) for part in arrays]
        value = rule(*leaves)
        slopes = torch.autograd.grad((torch.tensor(weights) * value).sum(), leaves)
        return [part.detach().numpy() for part in (value, *slopes)]
    with jax.enable_x64(True):
        leaves = tuple(map(jnp.asarray, arrays))

        @by_numpy
        def both(leaves):
            value, back = jax.vjp(lambda parts: rule(*parts), leaves)
            return value, *back(jnp.asarray(weights))[0]

        return list(map(np.asarray, both(leaves)))


def test_second_derivatives():
    """The gradient is a series that can be differentiated itself."""
    mean, covariance = MEANS[0, 0, :3], torch.tensor(COVARIANCE[0, :3, :3])
    weights, step = torch.arange(9.0).reshape(3, 3), torch.tensor(1e-4 * rng.normal(size=3))

    def loss(mean):
        return (weights * mehler.mehler(activation("tanh"), mean, covariance, order=ORDER)).sum()

    slope, mean = torch.func.grad(loss), torch.tensor(mean)
    _, along = torch.func.jvp(slope, (mean,), (step,))
    torch.testing.assert_close(
        along, (slope(mean + step) - slope(mean - step)) / 2, rtol=1e-5, atol=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variance", [0.0, 1e-20, 1e10])
def test_certain_and_wide_inputs_have_finite_gradients(variance, dtype):
    mean = torch.tensor([0.3, -1.0, 20.0], dtype=dtype, requires_grad=True)
    root = torch.full((3, 1), variance**0.5, dtype=dtype)
    covariance = (root @ root.mT).requires_grad_()
    value = mehler.mehler(activation("tanh"), mean, covariance, order=32)
    slopes = torch.autograd.grad(value.sum(), (mean, covariance))
    assert all(torch.isfinite(part).all() for part in (value, *slopes))
