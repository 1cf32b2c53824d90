"""Products and solutions with matrices, in the form that each framework runs fastest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import (
    BLOCK,
    LARGE,
    affine,
    affine_squared,
    pairs_of_rows,
    row_sums,
    shrunk,
    squared,
    squared_products,
)

NUMBERS = np.array([0.0, -0.0, 3.0, -1.7, 1e-30, -1e30, np.inf, np.nan], np.float32)
RANDOM = np.random.default_rng(0)
X, MATRIX, SHIFT = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(4, 3)), RANDOM.normal(size=4)


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor, jnp.asarray])
def test_frameworks_agree(array):
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(squared(array(NUMBERS)), NUMBERS * NUMBERS)
    x, matrix, shift = (array(part.astype(np.float32)) for part in (X, MATRIX, SHIFT))
    np.testing.assert_allclose(affine(x, matrix, shift), X @ MATRIX.T + SHIFT, rtol=2e-5)
    np.testing.assert_allclose(affine(x, matrix), X @ MATRIX.T, rtol=2e-5)
    np.testing.assert_allclose(affine_squared(x, matrix), X @ (MATRIX**2).T, rtol=2e-5)


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor, jnp.asarray])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("lead", [(), (5,), (2, 5), (10_000,)])
def test_few_rows_map_as_many_do(array, rows, lead):
    inputs = RANDOM.normal(size=(*lead, 3)).astype(np.float32)
    matrix = MATRIX[:rows].astype(np.float32)
    x, few = array(inputs), array(matrix)
    np.testing.assert_allclose(affine(x, few), inputs @ matrix.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(affine_squared(x, few), inputs @ (matrix**2).T, rtol=1e-4, atol=1e-5)
    pairs = np.einsum("ik,jk,...k->...ij", matrix, MATRIX, inputs)
    found = pairs_of_rows(x, few, array(MATRIX.astype(np.float32)))
    np.testing.assert_allclose(found, pairs, rtol=1e-4, atol=1e-4)


def test_derivatives_of_squares_in_jax():
    x = jnp.asarray([0.0, 2.0, -3.0])
    np.testing.assert_array_equal(jax.vmap(jax.grad(squared))(x), 2 * x)
    np.testing.assert_array_equal(jax.vmap(jax.grad(jax.grad(squared)))(x), jnp.full(3, 2.0))
    np.testing.assert_array_equal(jax.jacfwd(squared)(x), jnp.diag(2 * x))


def test_row_sums_have_the_precision_of_the_dtype():
    x = RANDOM.normal(size=(7, 1000)).astype(np.float32)
    np.testing.assert_allclose(row_sums(jnp.asarray(x)), x.sum(-1, dtype=np.float64), atol=1e-4)
    assert row_sums(jnp.ones((3, 0))).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("columns", [1, 7])
def test_blocks_give_what_the_whole_gives(columns):
    rows = (LARGE + 1) * BLOCK // columns + 5
    x = jax.random.normal(jax.random.key(0), (rows, columns))
    weight = jax.random.normal(jax.random.key(1), (rows,))
    vector = jnp.arange(1.0, columns + 1)
    value, gradient = jax.jit(jax.value_and_grad(lambda v: weight @ squared_products(x, v)))(vector)
    squares = np.asarray(x, np.float64) ** 2
    expected = np.asarray(weight, np.float64) @ squares
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-2 * np.sqrt(rows))
    assert abs(float(value) - expected @ np.arange(1.0, columns + 1)) < 1e-2 * rows**0.5


def test_several_vectors_at_once():
    x = jax.random.normal(jax.random.key(0), (LARGE * BLOCK, 1))
    vectors = jnp.asarray([[1.0], [3.0]])
    found = jax.vmap(lambda v: squared_products(x, v))(vectors)
    np.testing.assert_allclose(found, vectors * (x * x)[:, 0], rtol=1e-6)


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
        ("gelu", 1.0, (3e-7, 2e-6, 1e-6, 1e-6, 4e-6, 3e-6)),
        ("gelu_tanh", 1.0, (5e-7, 3e-6, 2e-6, 3e-5, 1e-4, 5e-5)),
        ("softplus", 1.9, (1e-6, 3e-6, 1e-6, 2e-6, 6e-6, 2e-5)),
    ],
)
def test_without_double_precision(name, width, tolerances):
    """Errors in units of √(w² + v) and of v for the variance, as documented."""
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


@pytest.mark.parametrize("name", ["relu"])
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


def test_shrunk_has_a_gradient_where_variances_underflow():
    """The variance of a unit without weights, 1e-23, squared is no number of float32."""
    explained = np.array([1e-23, 1e-29, 0.25, 0.0], np.float32)
    variance = explained * np.array([1 - 1e-6, 1 - 1e-6, 0.5, 1.0], np.float32)
    leaves = [torch.tensor(part, requires_grad=True) for part in (variance, explained)]
    factor, rest = shrunk(*leaves)
    by_torch = torch.autograd.grad(factor.sum() + rest.sum(), leaves)
    by_jax = jax.grad(lambda *parts: sum(map(jnp.sum, shrunk(*parts))), (0, 1))(variance, explained)
    for ours, theirs in zip(by_torch, by_jax, strict=True):
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(factor.detach()[2], 0.5**0.5, rtol=1e-6)


@pytest.mark.parametrize("needs_rows", [False, True])
def test_large_squares_in_torch(needs_rows):
    """Blocks have the value, the gradient and the second derivatives of one array."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(LARGE * BLOCK, 3, generator=random, dtype=torch.float64)
    vector = torch.randn(3, generator=random, dtype=torch.float64, requires_grad=True)
    leaves = [vector, x.requires_grad_()] if needs_rows else [vector]
    results = []
    for function in (squared_products, lambda x, vector: (x * x) @ vector):
        loss = function(x, vector).square().mean()
        first = torch.autograd.grad(loss, leaves, retain_graph=True)
        again = torch.autograd.grad(loss, leaves, create_graph=True)
        second = torch.autograd.grad(sum(part.square().sum() for part in again), leaves)
        results.append((loss, *first, *second))
    for ours, other in zip(*results, strict=True):
        torch.testing.assert_close(ours, other)
