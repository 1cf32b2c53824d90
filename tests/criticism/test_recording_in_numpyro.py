"""Programs of JAX with draws where they were recorded with moments."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoDiagonalNormal

from numpyro_moments import DVIGuide, moment_accuracy
from tests.fitting.models import HOSTS, started

X = jnp.linspace(-1, 1, 15).reshape(5, 3)


def weight(name, *shape):
    return numpyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))


def observe(f):
    with numpyro.plate("data", len(f)):
        numpyro.sample("obs", dist.Normal(f, 0.3), obs=jnp.zeros(len(f)))


@jax.jit
def layer(x, weight):
    return jax.nn.silu(x @ weight)


def softmax(x):
    """Spelled out, of which no part has moments of its own."""
    f = x @ weight("first", 3, 4)
    exponentials = jnp.exp(f - f.max(-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)
    observe(probabilities @ weight("last", 4))


def jitted(x):
    observe(layer(x, weight("first", 3)))


def chain(x):
    def step(state, inputs):
        state = 0.9 * state + inputs
        return state, state

    _, states = jax.lax.scan(step, 0.0, weight("first", 5))
    observe(states)


def dropped(x):
    keep = jax.random.bernoulli(numpyro.prng_key(), 0.9, x.shape)
    observe(jnp.where(keep, x / 0.9, 0.0) @ weight("first", 3))


PROGRAMS = {
    softmax: "dot_general softmax dot_general",
    jitted: "dot_general silu",
    chain: "scan scan",
    dropped: "where dot_general",
}


def accuracy(model, guide=None, **options):
    guide = guide or DVIGuide(init_scale=0.2)
    (params,) = started(HOSTS["numpyro"], model, guide, X)
    return moment_accuracy(model, guide, X, params=params, **options)


@pytest.mark.parametrize("model", PROGRAMS, ids=lambda model: model.__name__)
def test_programs_are_followed(model):
    result = accuracy(model, rng_key=jax.random.key(1))
    assert [row.operation for row in result] == PROGRAMS[model].split()
    assert result.rows[-1].site == "obs.loc"
    assert result.first is None, result
    assert result.left_out == ()
    assert all("test_recording_in_numpyro.py:" in row.line for row in result)


def test_guides_of_the_host_are_drawn():
    guide = AutoDiagonalNormal(jitted, init_scale=0.2)
    result = accuracy(jitted, guide, rng_key=jax.random.key(1))
    assert result.first is None, result
    assert result["silu"].shape == (5,)


def test_the_same_key_gives_the_same_draws():
    one, same, other = (accuracy(jitted, rng_key=jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one["obs.loc"].sampled_mean, same["obs.loc"].sampled_mean)
    assert (one["obs.loc"].sampled_mean != other["obs.loc"].sampled_mean).all()
