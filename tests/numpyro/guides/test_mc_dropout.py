"""MCDropoutGuide follows the conventions of NumPyro's guides."""

import functools

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from flax import linen
from numpyro.contrib.module import random_eqx_module, random_flax_module
from numpyro.infer import Predictive

from numpyro_moments import SVI, DeterministicELBO, MCDropoutGuide, predict
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import evaluated

P, K = 0.4, 0.6
KEY = jax.random.key(0)
X = jnp.linspace(-1, 1, 30).reshape(10, 3)
Y = jnp.tanh(X.sum(-1))


def observe(mean, y, scale=0.3):
    with numpyro.plate("data", len(mean)):
        numpyro.sample("obs", dist.Normal(mean, scale), obs=y)


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.relu(linen.Dense(4)(x)))[:, 0]


def flax_network(x, y=None):
    net = random_flax_module("net", Linen(), dist.Normal(0.0, 1.0), input_shape=x.shape)
    observe(net(x), y)


def equinox_network(x, y=None):
    mlp = equinox.nn.MLP(3, 1, 4, 1, key=jax.random.key(1))
    net = random_eqx_module("net", mlp, dist.Normal(0.0, 1.0))
    observe(jax.vmap(net)(x)[:, 0], y)


TRAININGS = {"flax": (flax_network, {"learn_p": True}), "equinox": (equinox_network, {})}


@functools.cache
def started(model=flax_network, **options):
    """A guide and its first parameters."""
    guide = MCDropoutGuide(p=P, **options)
    svi = SVI(model, guide, DeterministicELBO())
    return guide, evaluated(lambda: svi.get_params(svi.init(KEY, X, Y)))


def predicted(model, guide, params):
    """Mean and variance of the observations."""

    def moments(params):
        found = predict(model, guide, params, X)["obs"]
        return found.mean, found.variance

    return evaluated(moments, params)


@pytest.mark.parametrize("name", TRAININGS)
def test_training(name):
    model, options = TRAININGS[name]
    guide = MCDropoutGuide(p=P, **options)
    svi = SVI(model, guide, DeterministicELBO())
    state, losses = evaluated(lambda key: svi.init(key, X, Y), KEY), []
    update = by_numpy(lambda state: svi.update(state, X, Y))
    for _ in range(5):
        state, loss = update(state)
        losses.append(loss)
    params = svi.get_params(state)
    assert losses[-1] < losses[0]
    assert len(guide.masked) == 2
    assert set(guide.masked.values()) == {P}
    assert predicted(model, guide, params)[0].shape == (10,)
    learnt = [value for name, value in params.items() if name.endswith("_auto_p")]
    assert len(learnt) == (2 if options.get("learn_p") else 0)
    assert all(0 < value < 1 and abs(value - P) > 1e-4 for value in learnt)


def test_predictive_of_the_host():
    """Each row has the right marginal: mean and variance over draws are the predicted ones."""
    guide, params = started()
    draw = Predictive(flax_network, guide=guide, params=params, num_samples=4000)
    draws = np.asarray(evaluated(draw, KEY, X)["obs"])
    mean, variance = map(np.asarray, predicted(flax_network, guide, params))
    error = 4 * (variance / 4000) ** 0.5
    assert (abs(draws.mean(0) - mean) < error + 0.05 * variance**0.5).all()
    np.testing.assert_allclose(draws.var(0), variance, rtol=0.2)


def test_sites_may_be_drawn():
    """A drawn mask is that of all rows: the ELBO is the same in expectation."""
    guide, params = started()
    sites = ["net/Dense_1.kernel"]
    both = DeterministicELBO(sample_sites=sites, num_particles=1000), DeterministicELBO()
    first, second = evaluated(
        lambda params: [elbo.loss(KEY, params, flax_network, guide, X, Y) for elbo in both], params
    )
    assert float(first) == pytest.approx(float(second), rel=0.1)


def test_relaxed_masks_are_differentiable():
    guide, params = started(learn_p=True)

    def mean(params):
        return guide.get_posterior(params)["net/Dense_0.kernel"].sample(KEY, (2000,)).mean()

    slopes = evaluated(jax.grad(mean), params)
    moved = {name for name, slope in slopes.items() if "auto" in name and jnp.any(slope)}
    assert moved == {f"net/Dense_0.kernel_auto_{part}" for part in ("loc", "p")}
