"""State space models: states of one site that depend on each other, in every spelling."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from numpyro_moments import SVI, DeterministicELBO, DVIGuide
from tests.checks.jaxprs import by_numpy

STEPS, GAIN, NOISE = 4, 0.8, 0.5
Y = np.random.default_rng(2).normal(size=STEPS).cumsum()
DRAWS = 20_000
flat = dist.ImproperUniform(dist.constraints.real, (), ())


def observe(name, loc, y, scale=NOISE):
    numpyro.sample(name, dist.Normal(loc, scale), obs=y)


def scanned(y):
    def step(z, y):
        z = numpyro.sample("z", dist.Normal(GAIN * z, 1.0))
        observe("obs", z, y)
        return z, None

    scan(step, jnp.zeros(()), y)


def _differences(z, y):
    observe("first", z[0], 0.0, 1.0)
    observe("steps", z[1:] - GAIN * z[:-1], jnp.zeros(len(y) - 1), 1.0)
    observe("obs", z, y)


def batch(y):
    with numpyro.plate("time", len(y)):
        z = numpyro.sample("z", flat)
    _differences(z, y)


def vector(y):
    _differences(numpyro.sample("z", flat.expand([len(y)]).to_event(1)), y)


def shifted(y):
    with numpyro.plate("time", len(y)):
        z = numpyro.sample("z", flat)
        before = jnp.concatenate([jnp.zeros(1), z[:-1]])
        observe("steps", z - GAIN * before, jnp.zeros(len(y)), 1.0)
        observe("obs", z, y)


def looped(y):
    with numpyro.plate("time", len(y)):
        z = numpyro.sample("z", flat)
    before = 0.0
    for t in range(len(y)):
        observe(f"step {t}", z[t] - GAIN * before, 0.0, 1.0)
        observe(f"obs {t}", z[t], y[t])
        before = z[t]


SPELLINGS = {"scan": scanned, "batch": batch, "vector": vector, "shift": shifted, "loop": looped}
LOC, SCALE = jnp.linspace(-1.0, 1.0, STEPS), jnp.linspace(0.3, 0.7, STEPS)


def closed_form(loc, scale, y):
    """Negative ELBO of the linear Gaussian chain under independent Normals."""
    before, spread = jnp.pad(loc[:-1], (1, 0)), jnp.pad(scale[:-1] ** 2, (1, 0))
    steps = (loc - GAIN * before) ** 2 + scale**2 + GAIN**2 * spread
    errors = ((y - loc) ** 2 + scale**2) / NOISE**2
    constants = jnp.log(2 * jnp.pi) + jnp.log(NOISE)
    entropy = 0.5 * jnp.log(2 * jnp.pi * jnp.e) + jnp.log(scale)
    return jnp.sum(0.5 * (steps + errors) + constants - entropy)


def negative_elbo(model, guide, covariance="full"):
    elbo = DeterministicELBO(covariance=covariance)
    return lambda params, y: elbo.loss(jax.random.key(0), params, model, guide, y)


def initialised(guide):
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.block():
        guide(Y)
    return guide


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_equals_the_closed_form(name, covariance):
    model = SPELLINGS[name]
    guide = initialised(DVIGuide(model))

    def ours(loc, scale, y):
        params = {"z_auto_loc": loc, "z_auto_scale": scale}
        return negative_elbo(model, guide, covariance)(params, y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = by_numpy(jax.value_and_grad(ours, argnums=(0, 1)))(LOC, SCALE, Y)
    expected = by_numpy(jax.value_and_grad(closed_form, argnums=(0, 1)))(LOC, SCALE, Y)
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def second_order(y):
    def step(states, y):
        z = numpyro.sample("z", dist.Normal(0.6 * states[0] + 0.3 * states[1], 1.0))
        observe("obs", z, y)
        return (z, states[0]), None

    scan(step, (jnp.zeros(()), jnp.zeros(())), y)


def random_gain(y):
    gain = numpyro.sample("gain", dist.Normal(0.5, 0.3))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.3))

    def step(z, y):
        z = numpyro.sample("z", dist.Normal(gain * z, 1.0))
        observe("obs", z, y, noise)
        return z, None

    scan(step, numpyro.sample("start", dist.Normal(0.0, 1.0)), y)


def random_drift(y):
    drift = numpyro.sample("drift", dist.LogNormal(-1.0, 0.3))

    def step(z, y):
        z = numpyro.sample("z", dist.Normal(z, drift))
        observe("obs", z, y)
        return z, None

    scan(step, jnp.zeros(()), y)


def vector_states(y):
    turn = jnp.array([[0.9, 0.2], [-0.3, 0.7]])

    def step(z, y):
        z = numpyro.sample("z", dist.Normal(turn @ z, 1.0).to_event(1))
        observe("obs", z[0], y)
        return z, None

    scan(step, jnp.zeros(2), y)


MODELS = [second_order, random_gain, random_drift, vector_states]


@functools.cache
def sampled(model):
    """Parameters, and the mean of Trace_ELBO with its standard error."""
    svi = SVI(model, DVIGuide(model, init_scale=0.4), DeterministicELBO())
    params = by_numpy(lambda key: svi.get_params(svi.init(key, Y)))(jax.random.key(0))
    loss = jax.vmap(lambda key: Trace_ELBO().loss(key, params, model, svi.guide, Y))
    draws = np.asarray(by_numpy(loss)(jax.random.split(jax.random.key(1), DRAWS)), float)
    return svi.guide, params, draws.mean(), draws.std() / DRAWS**0.5


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("model", MODELS)
def test_chains_against_samples(model, covariance):
    guide, params, mean, error = sampled(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = by_numpy(negative_elbo(model, guide, covariance))(params, Y)
    assert abs(found - mean) < 4 * error


def test_a_guide_of_the_host_equals_the_closed_form():
    guide = initialised(AutoNormal(scanned))
    found = by_numpy(negative_elbo(scanned, guide))({"z_auto_loc": LOC, "z_auto_scale": SCALE}, Y)
    np.testing.assert_allclose(found, closed_form(LOC, SCALE, Y), rtol=1e-5)


def test_a_long_chain_compiles_to_few_operations():
    long = np.zeros(100)
    guide = DVIGuide(scanned)
    svi = SVI(scanned, guide, DeterministicELBO())
    state = by_numpy(lambda key: svi.init(key, long))(jax.random.key(0))
    program = jax.make_jaxpr(lambda state: svi.evaluate(state, long))(state)
    assert len(program.jaxpr.eqns) < 25 * len(long)
