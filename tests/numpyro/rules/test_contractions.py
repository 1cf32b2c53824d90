"""Contractions of models: columns, heads, ensembles, several axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_moments import Moments, propagate
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import evaluated, propagate_traced

EXACT = {"rtol": 1e-10, "atol": 1e-10}
MODES = ["full", "diagonal"]

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.usefixtures("double_precision_in_jax"),
]

X = np.random.default_rng(0).normal(size=(3, 4))


def array(*shape: int, seed: int = 0):
    return jnp.asarray(numbers(*shape, seed=seed))


def numbers(*shape: int, seed: int = 0):
    return np.random.default_rng(seed).normal(size=shape)


def weight(*shape: int, seed: int = 0) -> Moments:
    variance = 0.1 + numbers(*shape, seed=seed + 50) ** 2
    return Moments(array(*shape, seed=seed), variance=jnp.asarray(variance))


def same(result: Moments, expected: Moments) -> None:
    np.testing.assert_allclose(result.mean, expected.mean, **EXACT)
    np.testing.assert_allclose(result.variance, expected.variance, **EXACT)


def in_rows(v, w, u):
    return jax.nn.relu(jax.nn.relu(X @ v.T) @ w.T) @ u.T


COLUMNS = {
    "columns": lambda v, w, u: (u @ jax.nn.relu(w @ jax.nn.relu(v @ X.T))).T,
    "vmap_of_a_network": lambda v, w, u: jax.vmap(
        lambda row: u @ jax.nn.relu(w @ jax.nn.relu(v @ row))
    )(X),
    "vmap_of_layers": lambda v, w, u: jax.vmap(lambda h: u @ h)(
        jax.nn.relu(jax.vmap(lambda h: w @ h)(jax.nn.relu(jax.vmap(lambda h: v @ h)(X))))
    ),
    "einsum": lambda v, w, u: jnp.einsum(
        "oi,bi->bo", u, jax.nn.relu(jnp.einsum("oi,bi->bo", w, jax.nn.relu(X @ v.T)))
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", COLUMNS)
def test_networks_of_columns(name, mode):
    """Whichever axis the features are on, several layers have the moments of rows."""
    layers = [weight(5, 4, seed=1), weight(4, 5, seed=2), weight(2, 4, seed=3)]

    @by_numpy
    def both(*layers):
        return [propagate(f, *layers, covariance=mode) for f in (COLUMNS[name], in_rows)]

    same(*both(*layers))


def stacked(*shape: int, seed: int = 0):
    """An ensemble of weights, and its members."""
    both = weight(2, *shape, seed=seed)
    mean, variance = np.asarray(both.mean), np.asarray(both.variance)
    return both, [Moments(mean[i], variance=variance[i]) for i in range(2)]


ENSEMBLES = {
    "vmap": lambda v, w: jax.vmap(lambda v, w: jax.nn.relu(X @ v) @ w)(v, w),
    "matmul": lambda v, w: jax.nn.relu(X @ v) @ w,
    "einsum": lambda v, w: jnp.einsum(
        "mno,mop->mnp", jax.nn.relu(jnp.einsum("ni,mio->mno", X, v)), w
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ENSEMBLES)
def test_ensembles(name, mode):
    """A batch of weights gives what each member gives alone."""
    (v, first), (w, second) = stacked(4, 3, seed=1), stacked(3, 2, seed=2)
    member = by_numpy(lambda v, w: propagate(ENSEMBLES["matmul"], v, w, covariance=mode))
    result = propagate_traced(ENSEMBLES[name], v, w, covariance=mode)
    for i in range(2):
        alone = member(first[i], second[i])
        np.testing.assert_allclose(result.mean[i], alone.mean, **EXACT)
        np.testing.assert_allclose(result.variance[i], alone.variance, **EXACT)
        if mode == "full":
            np.testing.assert_allclose(result.covariance[i], alone.covariance, **EXACT)


def test_heads_of_one_random_input():
    """A batch of maps of one input keeps the covariance in each head."""
    heads, given = array(2, 3, 4), Moments(array(3, 4), covariance=_covariance(3, 4))
    result = propagate(lambda x: jnp.einsum("bi,hdi->bhd", x, heads), given, covariance="full")
    expected = np.einsum("hdi,bij,hej->bhde", heads, given.covariance, heads)
    np.testing.assert_allclose(result.covariance, expected, **EXACT)


def _covariance(*shape: int):
    factor = numbers(*shape, shape[-1], seed=9)
    return jnp.asarray(factor @ factor.swapaxes(-1, -2))


SEVERAL_AXES = {
    "tensordot": lambda w: jnp.tensordot(X.reshape(3, 2, 2), w.reshape(2, 2, 5), 2),
    "einsum": lambda w: jnp.einsum("bhd,hdo->bo", X.reshape(3, 2, 2), w.reshape(2, 2, 5)),
    "dot_general": lambda w: lax.dot_general(w.T, X, (((1,), (1,)), ((), ()))).T,
    "precision": lambda w: jnp.matmul(X, w, preferred_element_type=jnp.float64),
    "sum_of_products": lambda w: (X[:, :, None] * w).sum(1),
}


@pytest.mark.parametrize("mode", MODES)
def test_spellings_of_one_layer(mode):
    """By one program: every row by itself takes longer to compile."""

    def program(given):
        functions = [lambda w: X @ w, *SEVERAL_AXES.values()]
        return [propagate(f, given, covariance=mode) for f in functions]

    expected, *results = evaluated(program, weight(4, 5))
    for result in results:
        same(result, expected)


def test_lower_precision_is_raised_before_the_product():
    given = Moments(array(4, 2).astype(jnp.float32), variance=jnp.ones((4, 2), jnp.float32))
    function = lambda w: jnp.matmul(  # noqa: E731
        X.astype(jnp.float32), w, preferred_element_type=jnp.float64
    )
    result = propagate(function, given)
    assert result.mean.dtype == result.variance.dtype == jnp.float64
    np.testing.assert_allclose(result.mean, X.astype(jnp.float32) @ given.mean, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_scalar_products_of_rows_are_sums_of_products(mode):
    """u[i] · v[j], the mean of a matrix factorisation, in every spelling."""
    i, j = np.array([0, 2, 2, 1]), np.array([1, 1, 0, 2])
    u, v = weight(3, 2), weight(3, 2, seed=3)
    expected = propagate_traced(lambda u, v: (u[i] * v[j]).sum(-1), u, v, covariance=mode)
    for spelling in (
        lambda u, v: jnp.einsum("nk,nk->n", u[i], v[j]),
        lambda u, v: jax.vmap(jnp.dot)(u[i], v[j]),
    ):
        same(propagate_traced(spelling, u, v, covariance=mode), expected)
