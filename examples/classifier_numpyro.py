"""The classifier of the attacks in NumPyro: three hidden layers, trained with dropout."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from dropout import Net, init_scale
from dropout_numpyro import bayesian_linear

from numpyro_moments import BBAlphaELBO, DeterministicELBO, MCDropoutGuide, fit, predict


def network(hidden: int) -> Callable:
    """Three hidden ReLU layers and ten classes; priors N(0, 1)."""

    def model(x: jax.Array, y: jax.Array | None = None) -> jax.Array:
        for layer in range(3):
            x = jax.nn.relu(bayesian_linear(f"hidden{layer}", x, hidden))
        logits = bayesian_linear("output", x, 10)
        with numpyro.plate("data", len(x)):
            return numpyro.sample("obs", dist.Categorical(logits=logits), obs=y)

    return model


def he_normal(site: dict | None = None) -> jax.Array | Callable | None:
    """He's initial weights, and biases of zero."""
    if site is None:
        return he_normal
    if site["type"] != "sample" or site["is_observed"]:
        return None
    shape = site["fn"].event_shape
    return init_scale(shape) * jax.random.normal(site["kwargs"]["rng_key"], shape)


class Classifier:
    """A trained network.

    Args:
        x: images [n, 784].
        y: their classes [n].
        net: what is trained, and how.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, net: Net) -> None:
        self.model, self.net, self.key = network(net.hidden), net, jax.random.key(net.seed)
        self.guide = MCDropoutGuide(self.model, p=net.rates, init_loc_fn=he_normal)
        found = fit(
            self.model,
            self.guide,
            x,
            y,
            objective=self._objective(net.alpha),
            steps=net.steps,
            batch_size=net.batch_size,
            learning_rate=net.learning_rate,
            every=50,
            seed=net.seed,
        )
        self.params = found.params
        self.seconds_per_step = found.seconds["fitting"] / net.steps
        self._slope = jax.jit(jax.grad(self._loss))

    def _objective(self, alpha: float) -> BBAlphaELBO | DeterministicELBO:
        if self.net.propagation == "mean":
            return DeterministicELBO(propagation="mean")
        return BBAlphaELBO(alpha, **self.net.options(self.net.particles))

    def _loss(self, x: jax.Array, y: jax.Array) -> jax.Array:
        objective = self._objective(1.0)
        return objective.loss(self.key, self.params, self.model, self.guide, x, y)

    def gradient(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of the log predictive probability of classes, the energy of α = 1, for the images."""
        return -np.asarray(self._slope(jnp.asarray(x), jnp.asarray(y)))

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Predictive probabilities of the classes [n, 10]."""
        options = self.net.options(self.net.draws)
        key = {} if self.net.propagation == "analytic" else {"rng_key": self.key}
        found = predict(self.model, self.guide, self.params, jnp.asarray(x), **options, **key)
        return np.asarray(found["obs"].probs)
