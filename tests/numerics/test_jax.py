"""What the mathematics does in its own way under JAX: derivatives, fits, loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.table import activation

rng = np.random.default_rng(3)
SCALES = 10.0 ** rng.uniform(-3, 2, 1500)
MEANS = np.where(rng.uniform(size=1500) < 0.5, SCALES * rng.uniform(-6, 6, 1500), 5 * SCALES**0.1)
VARIANCES = SCALES**2


def jitted_with_slopes(name, mean, variance):
    """Mean, variance, and the derivatives of each by μ and by v."""

    @jax.jit
    def compute(mean, variance):
        moments, pulled = jax.vjp(activation(name).moments, mean, variance)
        one, zero = jnp.ones_like(mean), jnp.zeros_like(mean)
        return *moments, *pulled((one, zero)), *pulled((zero, one))

    found = compute(jnp.asarray(mean, jnp.float32), jnp.asarray(variance, jnp.float32))
    return [np.asarray(part, np.float64) for part in found]


def exact_with_slopes(name, mean, variance):
    arguments = [torch.tensor(a.astype(np.float32)).double() for a in (mean, variance)]
    arguments = [argument.requires_grad_() for argument in arguments]
    moments = activation(name).moments(*arguments)
    slopes = [
        slope
        for part in moments
        for slope in torch.autograd.grad(part.sum(), arguments, retain_graph=True)
    ]
    return [part.detach().numpy() for part in (*moments, *slopes)]


@pytest.mark.parametrize(
    ("name", "width", "tolerances"),
    [
        ("relu", 0.0, (3e-7, 2e-6, 1e-6, 1e-6, 2e-6, 2e-6)),
        ("gelu", 1.0, (3e-7, 2e-6, 1e-6, 1e-6, 4e-6, 2e-6)),
        ("gelu_tanh", 1.0, (5e-7, 3e-6, 2e-6, 3e-5, 1e-4, 5e-5)),
        ("softplus", 1.9, (1e-6, 3e-6, 1e-6, 2e-6, 6e-6, 2e-5)),
    ],
)
def test_without_double_precision(name, width, tolerances):
    """Errors in units of √(w² + v) for the mean and of v for the variance, as documented."""
    unit = (width**2 + VARIANCES) ** 0.5
    units = (unit, VARIANCES, 1.0, 1 / unit, VARIANCES / unit, 1.0)
    found = jitted_with_slopes(name, MEANS, VARIANCES)
    exact = exact_with_slopes(name, MEANS, VARIANCES)
    for place, (ours, true, size, tolerance) in enumerate(
        zip(found, exact, units, tolerances, strict=True)
    ):
        assert (np.abs(ours - true) / size).max() < tolerance, place


def test_pieces_of_large_arrays_agree_with_small_ones():
    """Beyond a piece of 1024 elements a compiled loop takes over."""
    kind = activation("silu")
    with jax.enable_x64(True):
        ours = jax.jit(kind.moments)(jnp.asarray(MEANS), jnp.asarray(VARIANCES))
    for part, exact in zip(ours, kind.moments(MEANS, VARIANCES), strict=True):
        np.testing.assert_allclose(part, exact, rtol=1e-9)


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_second_derivatives(name):
    """The gradient can be differentiated, though it is computed together with the values."""
    kind = activation(name)
    with jax.enable_x64(True):
        point = jnp.asarray([0.3, -1.2]), jnp.asarray([0.5, 2.0])
        slope = jax.jit(jax.grad(lambda m, v: kind.moments(m, v)[1].sum(), argnums=(0, 1)))
        step = 1e-5
        for argument in (0, 1):
            bend = jax.grad(lambda *a: sum(part.sum() for part in slope(*a)), argument)(*point)
            ahead, behind = (
                [p + sign * step if i == argument else p for i, p in enumerate(point)]
                for sign in (1, -1)
            )
            change = (sum(slope(*ahead)) - sum(slope(*behind))) / (2 * step)
            np.testing.assert_allclose(bend, change, rtol=1e-6, atol=1e-9)
