"""What NumPy makes of a traced program is what the compiled program gives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_moments.evaluation.programs import Programs
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
    return jnp.einsum("bij,bkj,jl->lbk", x, x, x[0].T @ x[0])


def convolutions(x):
    """With their gradients, which dilate, group rows and take padding away."""
    images, kernels = x.reshape(1, 4, 3, 2), x[:, :2].reshape(2, 4, 2, 1)
    names = ("NHWC", "HWIO", "NHWC")
    plain = partial(lax.conv_general_dilated, window_strides=(1, 2), padding=((1, 2), (-1, 3)))
    turned = partial(plain, rhs_dilation=(2, 1), lhs_dilation=(1, 2), dimension_numbers=names)
    groups = partial(plain, feature_group_count=2)
    apart = partial(plain, batch_group_count=2)
    cases = [
        (plain, images, kernels),
        (turned, images.swapaxes(1, 3), kernels.transpose(2, 3, 1, 0)),
        (groups, images, kernels[:, :2]),
        (apart, images.reshape(2, 2, 3, 2), kernels[:, :2]),
    ]
    slopes = [jax.grad(lambda *a, f=f: (f(*a) ** 2).sum(), (0, 1))(*a) for f, *a in cases]
    return [f(*a) for f, *a in cases], slopes


def windows(x):
    padded = lax.pad(x, x.dtype.type(0.5), ((1, 2, 0), (-1, 0, 2), (2, -1, 1)))
    options = {"window_dimensions": (1, 2, 2), "window_strides": (1, 1, 2)}
    options |= {"padding": ((0, 0), (1, 0), (0, 1)), "window_dilation": (1, 2, 1)}
    largest = lax.reduce_window(x, -jnp.inf, lax.max, **options)
    total = lax.reduce_window(x, 0.0, lax.add, **options, base_dilation=(1, 1, 2))
    return padded, largest, total, jnp.split(x, (1, 3), -1)


def places(x):
    """Of indices inside and outside, with windows and batches of them."""
    rows, far = jnp.array([[1, 0], [-1, 1]]), jnp.array([0, -5, 7, 2])
    cut = jax.vmap(lambda part, i: lax.dynamic_slice(part, (i, i), (2, 3)))(x, rows[:, 0])
    found = [x[rows], x[:, far], x.at[:, far, 1].get(mode="fill"), x.at[far].get(mode="clip"), cut]
    found += [jnp.take_along_axis(x, rows[:, :, None], 1), jnp.arange(3).at[far].get(mode="fill")]
    totals = [x.at[rows].add(1 + x), x.at[:, far].add(2.0), x.at[far, :, 1].set(3.0, mode="clip")]
    slopes = jax.grad(lambda x: (jnp.take_along_axis(x, rows[:, :, None], 1) ** 2).sum())(x)
    return found, totals, slopes, jax.vmap(lambda part, i: part.at[i].add(part[i]))(x, rows)


def loops(x):
    total, rows = lax.scan(lambda c, row: (c + row.sum(), c * row), 0.5, x)
    backwards = lax.scan(lambda c, row: (c + row, (c, row[0])), x[0], x, reverse=True)
    long = lax.scan(lambda c, _: (jnp.sin(c) + 0.1, None), x, None, length=1500)
    halved = lax.while_loop(lambda c: c.max() > 0.1, lambda c: c / 2, x)
    return total, rows, backwards, long, halved, lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)


def slopes(x):
    def function(x):
        smooth = jax.nn.softplus(x) + jax.scipy.special.ndtr(x) + jnp.logaddexp(x, 1.0)
        return jnp.sum(jax.nn.relu(smooth) * lax.rsqrt(1 + x**2) + jax.lax.lgamma(3 + x))

    return jax.value_and_grad(function)(x)


def keys(x):
    """Of random numbers, which have shapes as other arrays have; and parts of arrays."""
    table = jnp.stack([jax.random.split(KEY, 3), jax.random.split(jax.random.fold_in(KEY, 1), 3)])
    some = table[1, 1:], table.reshape(-1)[jnp.array([4, 0])], table.T[0], table[:, None].squeeze(1)
    each = lax.map(lambda key: jax.random.uniform(key, (2,)) + x[0, 0, :2], table[0])
    moved = lax.dynamic_slice(x, (1, 9, 0), (1, 2, 3)), lax.rem(x, 0.3 + 0 * x)
    updated = lax.dynamic_update_slice(x, x[:1, :2] + 1, (1, 2, 0))
    return [jax.random.key_data(part) for part in some], each, moved, updated


PARTS = (draws, shapes, products, loops, slopes, keys)
EVERY = (*PARTS, convolutions, windows, places)


def everything(x):
    parts = EVERY if x.dtype == np.float64 else PARTS
    return {part.__name__: part(x) for part in parts}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_are_those_of_the_compiled_program(dtype):
    with jax.enable_x64(dtype is np.float64):
        found, expected = (make(everything)(X.astype(dtype)) for make in (by_numpy, jax.jit))
        kept = Programs.alone().run("kept", everything, jnp.asarray(X, dtype))
    tolerance = {np.float32: 1e-5, np.float64: 1e-12}[dtype]
    both, twice = {"found": found, "kept": kept}, jax.tree.leaves((expected, expected))
    for (path, ours), theirs in zip(jax.tree.leaves_with_path(both), twice, strict=True):
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


def test_many_steps_are_compiled():
    def steps(x, count):
        return lax.fori_loop(0, count, lambda _, at: (at + 1 / at) / 2 + jnp.zeros(3), x)

    start = jnp.full(3, 5.0)
    program = small_programs.Kept(steps, (start, 3), None)
    for count, is_long in ((3, False), (30_000, True), (3, True)):
        expected = steps(start, 3) if count == 3 else np.ones(3)
        np.testing.assert_allclose(program(start, count), expected, rtol=1e-6)
        assert (program.compiled is not None) == is_long


def test_programs_of_scripts_are_compiled_when_they_have_run_often(monkeypatch):
    """JAX keeps what it has compiled to itself in some programs, so that its calls are counted."""
    calls = []

    def counted(*arguments, **options):
        calls.append(arguments)
        return compiled(*arguments, **options)

    compiled = small_programs._compiled
    monkeypatch.setattr(small_programs, "_compiled", counted)
    tripled = jax.jit(lambda x: 3 * x + 0 * x.sum())
    with small_programs.large_by_numpy():
        lowered = tripled.lower(X).compile()
        for program in (tripled, lowered):
            for _ in range(small_programs.WORTH + 2):
                np.testing.assert_allclose(program(X), 3 * X, rtol=1e-6)
        assert isinstance(lowered.__dict__["_compiled"], jax.stages.Compiled)
    assert 0 < len(calls) < small_programs.WORTH


def test_keys_go_through_a_program():
    def kept(key):
        data = jax.random.key_data(key)
        return jax.random.split(key, (2, 3)).T, jax.random.wrap_key_data(data), data

    ours, expected = by_numpy(kept)(KEY), kept(KEY)
    for one, other in zip(map(jax.random.key_data, ours[:2]), expected[:2], strict=True):
        np.testing.assert_array_equal(one, jax.random.key_data(other))
    np.testing.assert_array_equal(ours[2], expected[2])
