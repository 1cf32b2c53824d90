"""Networks of flax, beside Trace_ELBO; forms of priors, training."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from flax import linen, nnx
from numpyro.contrib.module import random_flax_module, random_nnx_module
from numpyro.infer import Trace_ELBO

from numpyro_moments import SVI, DeterministicELBO, DVIGuide
from tests.checks.jaxprs import by_numpy
from tests.numpyro import models
from tests.oracles.numpyro_samples import perturbed

HIDDEN, DRAWS = 4, 2000
X, Y = (jnp.asarray(array) for array in models.data())
IMAGES = jnp.asarray(np.random.default_rng(0).normal(size=(8, 4, 4, 1)), jnp.float32)
TARGETS = IMAGES[:, 1:3, 1:3].mean((1, 2, 3))


def prior(name, shape):
    """By fan-in; scales and biases of normalisations stay near one."""
    scale = np.prod(shape[:-1]) ** -0.5 if len(shape) > 1 else 0.2
    return dist.Normal(1.0 if name.endswith("scale") else 0.0, scale)


def observe(mean, y):
    return models.observe(mean, dist.Normal(mean, 0.3), y)


class Linen(linen.Module):
    """Normalised tanh, then gelu."""

    @linen.compact
    def __call__(self, x):
        h = linen.tanh(linen.Dense(HIDDEN)(x))
        h = linen.LayerNorm()(h)
        return linen.Dense(1)(linen.gelu(linen.Dense(HIDDEN)(h)))[:, 0]


class Convolutional(linen.Module):
    @linen.compact
    def __call__(self, x):
        h = linen.relu(linen.Conv(2, (3, 3))(x))
        h = linen.avg_pool(h, (2, 2), strides=(2, 2))
        return linen.Dense(1)(h.reshape(len(x), -1))[:, 0]


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(3, HIDDEN, rngs=rngs)
        self.last = nnx.Linear(HIDDEN, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.first(x)))[:, 0]


def linen_model(x, y=None):
    observe(random_flax_module("net", Linen(), prior, input_shape=(1, 3))(x), y)


def convolutional_model(x, y=None):
    network = random_flax_module("net", Convolutional(), prior, input_shape=(1, 4, 4, 1))
    observe(network(x), y)


def nnx_model(x, y=None):
    observe(random_nnx_module("net", Nnx(nnx.Rngs(0)), prior)(x), y)


# Share of the loss by which the matching may differ, on top of three standard errors: with full
# covariance, and with the variances alone, which is too optimistic behind two hidden layers. A
# reshape of positions to features drops their covariance, with a CovarianceDroppedWarning: 2.2 %.
CASES = {
    "linen": (linen_model, (X, Y), (0.02, 0.08)),
    "convolutional": (convolutional_model, (IMAGES, TARGETS), (0.025, 0.025)),
    "nnx": (nnx_model, (X, Y), (0.005, 0.005)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::moment_calculus.errors.CovarianceDroppedWarning")
def test_networks_agree_with_samples(name):
    model, data, shares = CASES[name]
    guide = DVIGuide(model)

    @by_numpy
    def both(params):
        arguments = params, model, guide, *data
        draws = jax.vmap(lambda key: Trace_ELBO().loss(key, *arguments))
        return [
            DeterministicELBO(covariance=kind).loss(jax.random.key(0), *arguments)
            for kind in ("full", "diagonal")
        ], draws(jax.random.split(jax.random.key(7), DRAWS))

    losses, draws = both(perturbed(guide, *data, spread=0.1))
    draws = np.asarray(draws, np.float64)
    expected, error = draws.mean(), draws.std() / DRAWS**0.5
    for loss, share in zip(losses, shares, strict=True):
        assert abs(loss - expected) < 3 * error + share * abs(expected), (losses, expected, error)


FORMS = {
    "distribution": dist.Normal(0.0, 0.5),
    "names": {"Dense_0.kernel": dist.Normal(0.0, 0.5), "Dense_0.bias": dist.Normal(0.0, 0.5)},
    "callable": lambda name, shape: dist.Normal(0.0, 0.5),
}


def test_every_form_of_the_prior_is_one_model():
    """Names leave the other parameters to be optimised: here there are none."""

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(1)(x)[:, 0]

    params = {
        f"net/Dense_0.{name}_auto_{role}": jnp.full(shape, 0.3)
        for name, shape in (("kernel", (3, 1)), ("bias", (1,)))
        for role in ("loc", "scale")
    }

    def loss(form):
        def model(x, y):
            observe(random_flax_module("net", Network(), form, input_shape=(1, 3))(x), y)

        return DeterministicELBO().loss(jax.random.key(0), params, model, DVIGuide(model), X, Y)

    first, second, third = by_numpy(lambda: list(map(loss, FORMS.values())))()
    assert first == second == third


def test_parameters_without_a_prior_are_optimised():
    """Random last layer on a trained one: both kinds of parameters move."""

    def model(x, y=None):
        last = {name: dist.Normal(0.0, 1.0) for name in ("last.kernel", "last.bias")}
        observe(random_nnx_module("net", Nnx(nnx.Rngs(0)), last)(x), y)

    svi = SVI(model, DVIGuide(), DeterministicELBO())
    trained = svi.run(jax.random.key(0), 60, X, Y, progress_bar=False)
    start = svi.get_params(svi.init(jax.random.key(0), X, Y))
    assert trained.losses[-1] < 0.9 * trained.losses[0]
    moved = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), trained.params, start)
    assert all(part > 1e-3 for part in jax.tree.leaves(moved))
    assert {name for name in moved if "auto" in name} == {
        f"net/last.{name}_auto_{role}" for name in ("kernel", "bias") for role in ("loc", "scale")
    }
