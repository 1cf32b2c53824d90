"""propagate: moments of any function for uncertain inputs, without a model."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

from numpyro_moments import Moments, UnsupportedMoments, propagate
from numpyro_moments.units import bernoulli_probit
from tests.checks.jaxprs import by_numpy

RANDOM = np.random.default_rng(0)
FIRST, LAST = (RANDOM.normal(size=shape).astype(np.float32) for shape in ((3, 5), (5, 2)))


def layer(x):
    return x @ FIRST


def network(x):
    return jax.nn.relu(layer(x)) @ LAST


def moments(seed=0):
    root = np.random.default_rng(seed).normal(size=(4, 3, 3)).astype(np.float32)
    return Moments(jnp.ones((4, 3)), covariance=jnp.asarray(root @ np.swapaxes(root, -1, -2)))


def test_diagonal_is_the_default_and_compiled_moments_are_the_same():
    result = propagate(layer, moments())
    assert result.covariance is None
    assert result.variance.shape == (4, 5)
    compiled = by_numpy(lambda noisy: propagate(layer, noisy))(moments())
    np.testing.assert_allclose(compiled.mean, result.mean, rtol=1e-5)
    np.testing.assert_allclose(compiled.variance, result.variance, rtol=1e-5)


def test_vmap_over_moments():
    noisy = moments()
    rows = by_numpy(jax.vmap(lambda row: propagate(network, row, covariance="full")))(noisy)
    together = by_numpy(lambda noisy: propagate(network, noisy, covariance="full"))(noisy)
    np.testing.assert_allclose(rows.covariance, together.covariance, rtol=2e-5, atol=1e-5)


def test_certain_arguments_and_structures_pass_through():
    noisy = moments()
    result = propagate(
        lambda x, k, name: {"sum": x["a"] + k, "rest": (k, x["a"][..., 0])}, {"a": noisy}, 2.0, "b"
    )
    np.testing.assert_allclose(result["sum"].mean, noisy.mean + 2)
    assert result["rest"][0].mean == 2.0
    assert result["rest"][0].variance == 0.0
    np.testing.assert_allclose(result["rest"][1].variance, noisy.variance[..., 0])


def test_unsupported_operation_names_input_line_and_remedy():
    with pytest.raises(UnsupportedMoments) as refusal:
        propagate(lambda inputs: jnp.sort(inputs["x"]), {"x": moments()})
    message = str(refusal.value)
    assert "sort" in message
    assert "test_propagate.py" in message
    assert "input 0['x']" in message
    assert "remedy" in message


def test_unknown_options_name_the_candidates():
    with pytest.raises(ValueError, match="rules='mean' is not one of exact, dvi"):
        propagate(network, moments(), rules="mean")


def dropped(key, h):
    return jnp.where(jax.random.bernoulli(key, 0.8, h.shape), h / 0.8, 0.0)


KEY = jax.random.key(3)
# Functions that draw, with mean and variance for h ~ N(0.7, 1.3), over the draws too.
DRAWING = {
    "a key of NumPyro's": (lambda h: dropped(numpyro.prng_key(), h), 0.7, 1.7475),
    "a key of its own": (lambda h: dropped(jax.random.key(0), h), 0.7, 1.7475),
    "a key from outside": (lambda h: dropped(KEY, h), 0.7, 1.7475),
    "within jax.jit": (lambda h: jax.jit(dropped)(numpyro.prng_key(), h), 0.7, 1.7475),
    "two keys": (lambda h: dropped(KEY, h) + dropped(numpyro.prng_key(), h), 1.4, 6.095),
    "one key twice": (lambda h: dropped(KEY, h) + dropped(KEY, h), 1.4, 6.99),
    "normal noise": (lambda h: h + jax.random.normal(numpyro.prng_key(), h.shape), 0.7, 2.3),
    "a unit": (lambda h: bernoulli_probit(numpyro.prng_key(), h), 0.6778038, 0.2183858),
}


def noisy_number():
    return Moments(jnp.array([0.7]), variance=jnp.array([1.3]))


@pytest.mark.parametrize("name", DRAWING)
def test_draws_inside_of_the_function_are_marginalised(name):
    function, mean, variance = DRAWING[name]
    found = propagate(function, noisy_number(), rng_key=jax.random.key(7))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-5)


def test_sampled_particles_have_draws_of_their_own():
    options = {"propagation": "sampled", "num_particles": 4000, "rng_key": jax.random.key(7)}
    found = propagate(lambda h: dropped(numpyro.prng_key(), h), noisy_number(), **options)
    np.testing.assert_allclose(found.variance, 1.7475, rtol=0.15)


def test_draws_that_are_not_marginalised_are_told():
    with pytest.warns(UserWarning, match="taken for constants: pass rng_key="):
        propagate(lambda h: dropped(KEY, h), noisy_number())
    with pytest.raises(ValueError, match=r"asks for numpyro\.prng_key"):
        propagate(lambda h: dropped(numpyro.prng_key(), h), noisy_number())
    other = lambda h: h * jax.random.gamma(KEY, 2.0, h.shape)  # noqa: E731
    with pytest.raises(UnsupportedMoments, match=r"jax.random.gamma: .*\n  where: .*test_propag"):
        propagate(other, noisy_number(), rng_key=KEY)
