"""Draws by NumPy in place of JAX's compiled samplers have the distributions' moments."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro import handlers

from numpyro_moments.draws.by_numpy import DrawnByNumPy, sample

KEYS, OF_A_KEY = 2000, 10
COUNT = KEYS * OF_A_KEY
RATES = jnp.array([0.3, 4.0, 60.0])
CASES = {
    "poisson": lambda: dist.Poisson(RATES),
    "gamma": lambda: dist.Gamma(RATES, 2.0),
    "negative binomial": lambda: dist.NegativeBinomial2(RATES, 3.0),
    "binomial": lambda: dist.Binomial(9, jnp.array([0.1, 0.5, 0.9])),
    "binomial of logits": lambda: dist.Binomial(9, logits=jnp.array([-1.0, 0.0, 2.0])),
    "beta": lambda: dist.Beta(RATES, 2.0),
    "student": lambda: dist.StudentT(9.0, RATES, 2.0),
    "zero-inflated": lambda: dist.ZeroInflatedPoisson(0.3, RATES),
    "wrapped": lambda: dist.Poisson(4.0).expand([3]).mask(True).to_event(1),
}


@pytest.mark.parametrize("name", CASES)
def test_moments_of_draws(name):
    fn = CASES[name]()
    draw = jax.jit(jax.vmap(lambda key: sample(fn, key, (OF_A_KEY, 3))))
    found = np.reshape(draw(jax.random.split(jax.random.key(0), KEYS)), (COUNT, 3))
    assert found.dtype == jax.eval_shape(fn.sample, jax.random.key(0)).dtype
    inner = fn.base_dist.base_dist if name == "wrapped" else fn
    mean, variance = (np.broadcast_to(part, (3,)) for part in (inner.mean, inner.variance))
    assert (np.abs(found.mean(0) - mean) < 5 * np.sqrt(variance / COUNT)).all()
    fourth = ((found - mean) ** 4).mean(0)  # the error of a variance
    assert (np.abs(found.var(0) - variance) < 5 * np.sqrt(fourth / COUNT)).all()


def test_a_draw_depends_on_its_key_alone():
    draw = lambda key: sample(dist.Poisson(RATES), key, (3,))  # noqa: E731
    keys = jax.random.split(jax.random.key(1), 6)
    together = jax.vmap(draw)(keys)
    np.testing.assert_array_equal(together, [draw(key) for key in keys])
    np.testing.assert_array_equal(together, jax.jit(lambda k: jax.lax.map(draw, k))(keys))


@pytest.mark.parametrize("name", ["poisson", "gamma"])
def test_draws_in_double_precision(name):
    fn = CASES[name]()
    with jax.enable_x64(True):  # of this thread: JAX calls back from others
        found = jax.jit(lambda key: sample(fn, key, (400, 3)))(jax.random.key(0))
        assert found.dtype == jax.eval_shape(fn.sample, jax.random.key(0)).dtype
    error = np.sqrt(np.asarray(fn.variance) / 400)
    assert (np.abs(np.asarray(found).mean(0) - np.asarray(fn.mean)) < 5 * error).all()


def test_what_has_no_draws_is_told():
    key, rates = jax.random.key(0), jnp.array([1.0, jnp.inf, jnp.nan, -1.0])
    found = sample(dist.Poisson(rates, validate_args=False), key, (4,))
    assert found[0] >= 0
    assert (found[1:] == -1).all()
    assert np.isnan(sample(dist.Gamma(jnp.nan, 1.0, validate_args=False), key, (2,))).all()
    assert (sample(dist.Binomial(3, 1.5, validate_args=False), key, (2,)) == -1).all()


def test_others_are_drawn_by_the_framework():
    class Halved(dist.Poisson):
        def sample(self, key, sample_shape=()):
            return super().sample(key, sample_shape) // 2

    key = jax.random.key(0)
    assert sample(dist.Normal(0.0, 1.0), key, ()) is None
    assert sample(Halved(3.0), key, ()) is None

    def model():
        numpyro.sample("n", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 4):
            return numpyro.sample("k", dist.Poisson(3.0))

    with handlers.seed(rng_seed=0):
        plain = handlers.trace(model).get_trace()
    with handlers.seed(rng_seed=0):
        ours = handlers.trace(DrawnByNumPy(model)).get_trace()
    assert ours["n"]["value"] == plain["n"]["value"]
    assert ours["k"]["value"].shape == (4,)
