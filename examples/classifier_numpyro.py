"""The classifiers of digits in NumPyro: three hidden layers, dropped or with Gaussian weights."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from dropout import Net, init_scale
from dropout_numpyro import bayesian_linear
from regression import FAMILIES, groups_of

from numpyro_moments import (
    BBAlphaELBO,
    DeterministicELBO,
    DVIGuide,
    Fit,
    MCDropoutGuide,
    TridiagonalGuide,
    fit,
    predict,
)


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


def train(
    model: Callable,
    guide: Callable,
    objective: BBAlphaELBO | DeterministicELBO,
    x: np.ndarray,
    y: np.ndarray,
    net: Net,
) -> Fit:
    return fit(
        model,
        guide,
        x,
        y,
        objective=objective,
        steps=net.steps,
        batch_size=net.batch_size,
        learning_rate=net.learning_rate,
        kl_warm_up=net.kl_warm_up,
        every=50,
        seed=net.seed,
    )


class Classifier:
    """A network trained with dropout.

    Args:
        x: images [n, 784].
        y: their classes [n].
        net: what is trained, and how.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, net: Net) -> None:
        self.model, self.net, self.key = network(net.hidden), net, jax.random.key(net.seed)
        self.guide = MCDropoutGuide(self.model, p=net.rates, init_loc_fn=he_normal)
        found = train(self.model, self.guide, self._objective(net.alpha), x, y, net)
        self.params = found.params
        self.seconds_per_step = found.seconds["fitting"] / net.steps
        self.by_draws = found.by_draws  # the last loss, beside draws
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


class GaussianClassifier:
    """A network whose weights have a Gaussian posterior, trained by its ELBO.

    Args:
        x: images [n, 784].
        y: their classes [n].
        family: of the posterior.
        net: what is trained, and how.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, family: str, net: Net) -> None:
        self.model, self.net = network(net.hidden), net
        options, start = FAMILIES[family], {"init_loc_fn": he_normal, "init_scale": 0.01}
        kind = DVIGuide if options is None else TridiagonalGuide
        self.guide = kind(self.model, **start, **(options or {}))
        objective = DeterministicELBO(**net.options(1))
        found = train(self.model, self.guide, objective, x, y, net)
        self.params, self.loss = found.params, found.loss
        self.seconds_per_step = found.seconds["fitting"] / net.steps
        self.parameters = sum(np.size(value) for value in found.params.values())
        self.groups = {} if options is None else groups_of(self.guide.summary(found.params))

    def drawn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predictive probabilities [n, 10] by draws of the posterior, and the ends [2, n, 10] of
        the 95 % credible intervals of the probabilities."""
        drawn = {"propagation": "sampled", "num_particles": self.net.draws}
        key = jax.random.key(self.net.seed)
        found = predict(self.model, self.guide, self.params, x, rng_key=key, **drawn)["obs"]
        return np.asarray(found.probs), np.asarray(found.credible_interval(0.95))

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Predictive probabilities of the classes [n, 10] in closed form."""
        found = predict(self.model, self.guide, self.params, x, covariance="diagonal")
        return np.asarray(found["obs"].probs)
