"""Covariances of large layers of JAX arrays: the rule of each row, and the size of the program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import diagonal
from moment_calculus.numerics.execution import divided, elements, preceded

SIZE, ROWS = 24, 8  # more numbers than pairs.LARGE


def gaussian(strengths):
    """Means and covariances of rows whose correlations are about as strong as is asked for."""
    rng = np.random.default_rng(5)
    factor = rng.normal(size=(ROWS, SIZE, 3)) * np.sqrt(strengths)[:, None, None]
    noise = 3 * (1 - np.asarray(strengths))[:, None, None] * np.eye(SIZE)
    return rng.normal(size=(ROWS, SIZE)), factor @ np.swapaxes(factor, -1, -2) + noise


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "heaviside"])
@pytest.mark.parametrize("rows", [2, ROWS])  # that decide together
def test_rows_of_weak_and_of_strong_correlations(name, rows, monkeypatch):
    monkeypatch.setattr(pairs, "ROOM", rows * SIZE * SIZE)
    function = activation(name)
    mean, covariance = gaussian([0.02, 0.03, 0.02, 0.9, 0.9, 0.8, 0.02, 0.9])
    found = pairs.covariance(function, jnp.asarray(mean.copy()), jnp.asarray(covariance.copy()))
    alone = [pairs.covariance(function, *row) for row in zip(mean, covariance, strict=True)]
    accuracy = 1e-7 if found.dtype == np.float64 else 3e-5
    np.testing.assert_allclose(found, np.stack(alone), atol=accuracy, rtol=0)


def test_a_row_is_certified_by_its_own_correlations():
    function, (mean, covariance) = activation("relu"), gaussian([0.02] * 6 + [0.95] * 2)
    layer = pairs.CompiledSeries(function, 24, pairs.ExactPairs(function, 32))
    arrays = jnp.asarray(mean.copy()), jnp.asarray(covariance.copy())
    spread = function.moments(arrays[0], diagonal(arrays[1]))[1]
    certified = layer._prepared(arrays[0], diagonal(arrays[1]), arrays[1], spread)[-1]
    assert certified.shape == (ROWS,)
    assert certified[:6].all()
    assert not certified[6:].any()


def test_a_layer_with_its_gradient_is_a_short_program():
    """Neither checks of known places nor slices of coefficients, which took long to compile."""
    mean, covariance = (jnp.asarray(part.copy()) for part in gaussian([0.5] * ROWS))
    loss = lambda *x: (pairs.covariance(activation("relu"), *x) ** 2).sum()  # noqa: E731
    text = jax.jit(jax.value_and_grad(loss, argnums=(0, 1))).lower(mean, covariance).as_text()
    assert text.count(" = ") < 4000


def test_terms_over_numbers_are_one_array():
    terms, numbers = np.arange(12.0).reshape(4, 3), [1.0, -2.0, 4.0, 8.0]
    expected = np.stack([term / number for term, number in zip(terms, numbers, strict=True)])
    for made in (list(terms), jnp.asarray(terms.copy())):
        found = preceded(made[1], divided(made, numbers))
        np.testing.assert_allclose(np.stack(found), [terms[1], *expected], rtol=1e-6)


def test_elements_and_diagonals_with_their_gradients():
    matrix = np.arange(18.0).reshape(2, 3, 3)
    weights = jnp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    of = lambda function: jax.value_and_grad(lambda x: (weights * function(x)).sum())  # noqa: E731
    taken = lambda x: elements(x.reshape(2, 9), jnp.asarray([0, 4, 8]))  # noqa: E731
    for function in (diagonal, taken):
        value, slope = of(function)(jnp.asarray(matrix.copy()))
        assert value == (np.diagonal(matrix, axis1=1, axis2=2) * weights).sum()
        np.testing.assert_array_equal(slope, np.eye(3) * np.asarray(weights)[..., None])
