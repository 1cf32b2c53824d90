"""What NumPy makes of a traced program is what the compiled program gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.checks import small_programs
from tests.checks.jaxprs import by_numpy

KEY, X = jax.random.key(3), np.linspace(-2.0, 3.0, 24).reshape(2, 3, 4)


def draws(x):
    keys = jax.random.split(jax.random.fold_in(KEY, 7), 5)
    apart = jax.vmap(lambda key: jax.random.gamma(key, 2.0))(keys)
    return jax.random.normal(keys[0], x.shape) * x, apart, jax.random.permutation(keys[1], 8)


def shapes(x):
    turned = jnp.flip(jnp.cumsum(x[:, ::2].swapaxes(0, 1), 1), 0)
    together = jnp.concatenate([turned, turned**-2], -1), lax.reshape(x, (6, 4), (1, 0, 2))
    return *together, jnp.where(x > 0, x, -1.0), x.astype(int) // 2, x.astype(int) % 3


def products(x):
    return jnp.einsum("bij,bkj,jl->lbk", x, x, x[0].T @ x[0]), lax.conv(
        x, x[:, :, :2], (1,), "SAME"
    )


def loops(x):
    total, rows = lax.scan(lambda c, row: (c + row.sum(), c * row), 0.5, x)
    halved = lax.while_loop(lambda c: c.max() > 0.1, lambda c: c / 2, x)
    return total, rows, halved, lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)


def slopes(x):
    def function(x):
        smooth = jax.nn.softplus(x) + jax.scipy.special.ndtr(x) + jnp.logaddexp(x, 1.0)
        return jnp.sum(jax.nn.relu(smooth) * lax.rsqrt(1 + x**2) + jax.lax.lgamma(3 + x))

    return jax.value_and_grad(function)(x)


def everything(x):
    return {part.__name__: part(x) for part in (draws, shapes, products, loops, slopes)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_are_those_of_the_compiled_program(dtype):
    with jax.enable_x64(dtype is np.float64):
        found, expected = (make(everything)(X.astype(dtype)) for make in (by_numpy, jax.jit))
    tolerance = {np.float32: 1e-5, np.float64: 1e-12}[dtype]
    pairs = zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True)
    for (path, ours), theirs in pairs:
        assert ours.dtype == theirs.dtype, path
        message = str(path)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=message)


def test_large_programs_with_loops_and_keys_are_not_compiled():
    def several(x):
        halved = jax.vmap(lambda row: lax.while_loop(lambda c: c.max() > 1, lambda c: c / 2, row))
        padded = lax.pad(x, 7.0, ((1, 0, 0), (0, 2, 1), (-1, -1, 0)))
        return halved(x), padded, jax.random.split(KEY), lax.split(x, (1, 3), 2)

    both = jax.jit(lambda x: (loops(x), several(x)))
    expected, x = both.lower(X.astype(np.float32)).compile()(X.astype(np.float32)), jnp.asarray(X)
    with small_programs.large_by_numpy():
        one, other = both.lower(x).compile()(x), jax.jit(lambda x: [*both(x)])(x)
    for found in (one, tuple(other)):
        for ours, theirs in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
            assert ours.dtype == theirs.dtype
            if jnp.issubdtype(ours.dtype, jax.dtypes.extended):
                ours, theirs = map(jax.random.key_data, (ours, theirs))
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_program_may_be_part_of_another():
    @jax.jit
    def outer(x):
        return by_numpy(jnp.sin)(x), by_numpy(lambda: x + 1)(), by_numpy(lambda: jnp.ones(2))()

    first, second, third = outer(X)
    np.testing.assert_allclose(first, np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(second, X + 1, rtol=1e-6)
    np.testing.assert_array_equal(third, np.ones(2))
