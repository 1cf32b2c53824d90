"""A likelihood of classes sees through every spelling of a softmax to the logits."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpy.testing import assert_allclose

from numpyro_moments import SVI, DVIGuide
from tests.checks.jaxprs import by_numpy

X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
CLASSES = np.array([0, 1, 2, 2, 1, 0])
HEADS = {
    "logits": lambda h: dist.Categorical(logits=h),
    "softmax": lambda h: dist.Categorical(probs=jax.nn.softmax(h)),
    "softmax by hand": lambda h: dist.Categorical(
        probs=jnp.exp(h) / jnp.exp(h).sum(-1, keepdims=True)
    ),
    "softmax under vmap": lambda h: dist.Categorical(probs=jax.vmap(jax.nn.softmax)(h)),
    "log_softmax": lambda h: dist.Categorical(logits=jax.nn.log_softmax(h)),
    "minus logsumexp": lambda h: dist.Categorical(
        logits=h - jax.nn.logsumexp(h, -1, keepdims=True)
    ),
}


def loss(head, key):
    def model(x, classes):
        weight = numpyro.sample("weight", dist.Normal(jnp.zeros((5, 3)), 1).to_event(2))
        with numpyro.plate("data", 6):
            numpyro.sample("y", head(x @ weight), obs=classes)

    svi = SVI(model, DVIGuide(model))
    return svi.evaluate(svi.init(key, X, CLASSES), X, CLASSES)


def test_losses_are_that_of_the_logits():
    losses = by_numpy(lambda key: {name: loss(head, key) for name, head in HEADS.items()})
    found = losses(jax.random.key(0))
    assert_allclose(list(found.values()), found["logits"], rtol=1e-6)
