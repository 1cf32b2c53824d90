"""Expectations without variances: softplus and log(1 + x²), small and large, in all frameworks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.series import softplus_mean
from moment_calculus.functions.series.log_square import expected_log1p_square
from moment_calculus.functions.series.softplus_mean import NARROW, TINY, expected_softplus
from moment_calculus.functions.table import Rescaled, Softplus, activation
from tests.checks.jaxprs import by_numpy

SCALES = np.array([1e-3, 0.1, 0.4, 0.69, 0.72, 1.5, 3.0])
STEPS = np.array([-8.0, -4.0, -1.0, 0.0, 0.5, 3.0, 8.0])
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(20)
TOLERANCES = {np.float64: (2e-9, 3e-10), np.float32: (2e-6, 5e-7)}  # relative, absolute


def grid():
    scale, step = (part.ravel() for part in np.meshgrid(SCALES, STEPS))
    return np.concatenate([scale * step, step]), np.concatenate([scale, scale]) ** 2


def expectations(function, mean, variance):
    """E f, E f′ and ½ E f″, by panels of Gauss-Legendre that close in on zero."""
    found = []
    near = np.geomspace(1e-3, 60, 40)
    for m, s in zip(mean, variance**0.5, strict=True):
        edges = np.concatenate([m + s * np.linspace(-12, 12, 61), near, -near, [0.0]])
        edges = np.unique(np.clip(edges, m - 12 * s, m + 12 * s))
        half = np.diff(edges)[:, None] / 2
        x = (edges[:-1, None] + half * (1 + POINTS)).ravel()
        mass = (half * WEIGHTS).ravel() * np.exp(-0.5 * ((x - m) / s) ** 2) / s
        found.append([mass @ part / np.sqrt(2 * np.pi) for part in function(x)])
    return np.array(found).T


def softplus(x):
    share = 1 / (1 + np.exp(-x))
    return np.logaddexp(0, x), share, share * np.exp(-x) * share / 2


def reflected(x):
    value, slope, bend = softplus(-x)
    return value, -slope, bend


def log1p_square(x):
    square = x * x
    return np.log1p(square), 2 * x / (1 + square), (1 - square) / (1 + square) ** 2


CASES = {
    "softplus": (lambda m, v: expected_softplus(m, v)[0], softplus),
    "softplus of −x": (lambda m, v: expected_softplus(m, v)[1], reflected),
    "log(1 + x²)": (expected_log1p_square, log1p_square),
}


def with_slopes(rule, mean, variance, framework):
    """The value and its derivatives by μ and v, by the framework."""
    if framework == "torch":
        leaves = [torch.tensor(part, requires_grad=True) for part in (mean, variance)]
        value = rule(*leaves)
        slopes = torch.autograd.grad(value.sum(), leaves)
        return [part.detach().numpy() for part in (value, *slopes)]
    with jax.enable_x64(mean.dtype == np.float64):
        both = jax.value_and_grad(lambda m, v: (rule(m, v).sum(), rule(m, v)), (0, 1), True)
        (_, value), slopes = by_numpy(both)(jnp.asarray(mean), jnp.asarray(variance))
        return [np.asarray(part) for part in (value, *slopes)]


@pytest.mark.parametrize("copies", [1, 400], ids=["small", "large"])
@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
def test_expectations_and_their_derivatives(name, dtype, framework, copies):
    rule, function = CASES[name]
    mean, variance = (np.tile(part, copies).astype(dtype) for part in grid())
    one = 2 * SCALES.size * STEPS.size
    expected = expectations(function, *(part[:one].astype(float) for part in (mean, variance)))
    relative, absolute = TOLERANCES[dtype]
    for ours, exact in zip(with_slopes(rule, mean, variance, framework), expected, strict=True):
        np.testing.assert_allclose(ours, np.tile(exact, copies), rtol=relative, atol=absolute)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_small_expectations_are_relatively_accurate(dtype):
    """What is seen with confidence costs little, and that little is right."""
    mean = np.linspace(-40, -4, 10).astype(dtype)
    variance = np.linspace(0.01, 2.0, 10).astype(dtype)
    value, slope, bend = expectations(softplus, mean.astype(float), variance.astype(float))
    found = with_slopes(CASES["softplus"][0], mean, variance, "torch")
    relative = 3e-5 if dtype is np.float32 else 1e-8
    for ours, exact in zip(found, (value, slope, bend), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=relative)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_narrow_elements_do_not_depend_on_wide_ones(framework):
    """A large array takes the cheap rule for all, some or no elements."""
    make = torch.tensor if framework == "torch" else jnp.asarray
    mean = np.linspace(-4, 4, 9000).astype(np.float32)
    narrow = np.full_like(mean, 0.9 * NARROW)
    mixed = np.where(np.arange(9000) % 7 == 0, 3.0, narrow).astype(np.float32)
    alone, among = (expected_softplus(make(mean), make(part)) for part in (narrow, mixed))
    same = mixed == narrow
    for one, other in zip(alone, among, strict=True):
        np.testing.assert_allclose(np.asarray(one)[same], np.asarray(other)[same], rtol=3e-6)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_tiny_variances(framework, dtype):
    """By the series, for arrays that have no larger variance; also at zero and far from it."""
    largest = TINY[0] if dtype is np.float32 else TINY[1]
    mean = np.array([-80.0, -30.0, -4.0, -1.3, -0.0, 0.0, 0.4, 2.0, 7.0, 30.0]).repeat(3)
    variance = np.tile(np.array([0.999, 0.3, 1e-9]) * largest, 10)
    exact = expectations(softplus, mean, variance)
    copies = 200  # JAX takes the series for large arrays only
    many = [np.tile(part, copies).astype(dtype) for part in (mean, variance)]
    found = with_slopes(CASES["softplus"][0], *many, framework)
    relative, absolute = TOLERANCES[dtype]
    for ours, right in zip(found, exact, strict=True):
        np.testing.assert_allclose(ours, np.tile(right, copies), rtol=relative, atol=absolute)
        assert (ours >= 0).all()


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_no_elements(framework, dtype):
    found = with_slopes(CASES["softplus"][0], *np.zeros((2, 0), dtype), framework)
    assert [part.shape for part in found] == [(0,)] * 3


def test_second_derivatives_at_zero():
    """Where both half lines meet: E S′ and E S‴/4, by differentiation of what is differentiated."""
    value = lambda m, v: expected_softplus(m, v)[0]  # noqa: E731
    bend = jax.grad(jax.grad(value))(jnp.zeros(()), jnp.full((), 1.0))
    leaf = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(
        value(leaf, torch.ones((), dtype=torch.float64)), leaf, create_graph=True
    )
    (again,) = torch.autograd.grad(slope, leaf)
    exact = 2 * expectations(softplus, np.zeros(1), np.ones(1))[2, 0]
    assert abs(float(bend) - exact) < 1e-5
    assert abs(again.item() - exact) < 1e-8


@pytest.mark.parametrize("function", [Softplus(), activation("logsigmoid"), activation("tanh")])
def test_an_expectation_is_the_mean_of_the_moments(function):
    mean, variance = (torch.tensor(part) for part in grid())
    rescaled = Rescaled(function, 0.7, -2.0, 0.3)
    for one in (function, rescaled):
        torch.testing.assert_close(
            one.expectation(mean, variance), one.moments(mean, variance)[0], rtol=2e-8, atol=1e-9
        )


def test_second_derivatives_of_the_softplus_are_those_of_the_first():
    """In closed form, as automatic differentiation would have them."""
    rng = np.random.default_rng(6)
    mean, variance = 6 * rng.normal(size=2000), 10.0 ** rng.uniform(-6, 2, size=2000)
    inputs = [torch.tensor(x, requires_grad=True) for x in (mean, variance)]
    plain, fast = softplus_mean._slopes(*inputs), softplus_mean._differentiable_slopes(*inputs)
    for ours, theirs in zip(fast, plain, strict=True):
        np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=1e-12)
        found, exact = (
            torch.autograd.grad(x.sum(), inputs, retain_graph=True) for x in (ours, theirs)
        )
        for one, other in zip(found, exact, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-15)
