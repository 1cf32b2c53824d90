"""The network of the regression examples in NumPyro: model, guide, training and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam
from regression import Schedule, Split

from numpyro_moments import SVI, DeterministicELBO, DVIGuide, EmpiricalBayesNormal, predict

Parameters = dict[str, jax.Array]


def heteroscedastic_network(hidden: int, rows: int) -> Callable:
    """One hidden ReLU layer and two outputs: the location and the log variance of the noise.

    Every weight matrix and bias vector has an empirical-Bayes prior of its own. `rows` is the size
    of the whole data set: the likelihood of a mini-batch is scaled up to it.
    """

    def model(x: jax.Array, y: jax.Array | None = None) -> jax.Array:
        out = bayesian_linear("output", jax.nn.relu(bayesian_linear("hidden", x, hidden)), 2)
        loc, scale = out[..., 0], jnp.exp(0.5 * out[..., 1])
        with handlers.scale(scale=rows / len(x)), numpyro.plate("data", len(x)):
            return numpyro.sample("obs", dist.Normal(loc, scale), obs=y)

    return model


def bayesian_linear(name: str, x: jax.Array, outputs: int) -> jax.Array:
    prior = partial(EmpiricalBayesNormal, alpha=1, beta=10)
    weight = numpyro.sample(f"{name}.weight", prior([outputs, x.shape[-1]]))
    bias = numpyro.sample(f"{name}.bias", prior([outputs]))
    return x @ weight.T + bias


def init_with_spread_kinks(site: dict | None = None) -> Any:
    """He's initial weights, and random hidden biases: ReLUs that start with their kinks all at
    zero keep the network nearly linear until the noise has absorbed what it cannot fit."""
    if site is None:
        return init_with_spread_kinks
    if site["type"] != "sample" or site["is_observed"]:
        return None
    shape = site["fn"].event_shape
    scale = {"hidden.bias": 1.0, "output.bias": 0.0}.get(site["name"], (2 / shape[-1]) ** 0.5)
    return scale * jax.random.normal(site["kwargs"]["rng_key"], shape)


def make_guide(model: Callable) -> DVIGuide:
    """A posterior that starts almost certain: noise in the weights hides the data at first."""
    return DVIGuide(model, init_loc_fn=init_with_spread_kinks, init_scale=0.01)


METHODS = {
    "dvi": lambda: DeterministicELBO(covariance="full"),
    "ddvi": lambda: DeterministicELBO(covariance="diagonal"),
    "mcvi": lambda: TraceMeanField_ELBO(num_particles=10),
}


def fit(
    split: Split, method: str, hidden: int, schedule: Schedule
) -> Iterator[tuple[np.ndarray, np.ndarray] | float]:
    """Train on a split and predict: losses, last (log density, mean) of the test rows."""
    model = heteroscedastic_network(hidden, len(split.x_train))
    guide = make_guide(model)
    params = yield from train(METHODS[method](), model, guide, split, schedule)
    log_prob = sampled_log_prob if method == "mcvi" else analytic_log_prob
    yield tuple(map(np.asarray, log_prob(model, guide, params, split.x_test, split.y_test)))


def train(
    elbo: ELBO, model: Callable, guide: DVIGuide, split: Split, schedule: Schedule
) -> Iterator[float]:
    """Take Adam steps on mini-batches, yielding each loss; returns the parameters.

    An epoch is one compiled loop.
    """
    x, y = jnp.asarray(split.x_train), jnp.asarray(split.y_train)
    svi = SVI(model, guide, Adam(one_cycle(schedule.learning_rate, schedule.steps)), elbo)
    state = svi.init(jax.random.key(schedule.seed), x[:1], y[:1])
    random = np.random.default_rng(schedule.seed)

    @jax.jit
    def epoch(state: Any, batches: jax.Array) -> tuple[Any, jax.Array]:
        return jax.lax.scan(lambda state, rows: svi.update(state, x[rows], y[rows]), state, batches)

    taken = 0
    while taken < schedule.steps:
        batches = mini_batches(random, len(x), schedule.batch_size)[: schedule.steps - taken]
        state, losses = epoch(state, batches)
        yield from map(float, losses)
        taken += len(batches)
    return svi.get_params(state)


def one_cycle(peak: float, steps: int) -> Callable[[jax.Array], jax.Array]:
    """A learning rate that rises over the first 30 % of the steps, then falls to zero."""
    summit = 0.3 * steps - 1

    def cosine(start: float, end: float, share: jax.Array) -> jax.Array:
        return end + (start - end) / 2 * (1 + jnp.cos(jnp.pi * jnp.clip(share, 0, 1)))

    def rate(step: jax.Array) -> jax.Array:
        rising = cosine(peak / 25, peak, step / summit)
        falling = cosine(peak, peak / 25e4, (step - summit) / (steps - 1 - summit))
        return jnp.where(step <= summit, rising, falling)

    return rate


def mini_batches(random: np.random.Generator, rows: int, batch_size: int) -> np.ndarray:
    """Row indices of the mini-batches of an epoch [batches, size]; a small remainder is skipped."""
    size = min(batch_size, rows)
    return random.permutation(rows)[: rows - rows % size].reshape(-1, size)


def sampled_log_prob(
    model: Callable,
    guide: DVIGuide,
    params: Parameters,
    x: np.ndarray,
    y: np.ndarray,
    samples: int = 1000,
) -> tuple[jax.Array, jax.Array]:
    """Log predictive density and predictive mean by averaging over posterior samples."""
    draws = guide.sample_posterior(jax.random.key(0), params, sample_shape=(samples,))

    def noise_at(weights: Parameters) -> tuple[jax.Array, jax.Array]:
        conditioned = handlers.seed(handlers.condition(model, data=weights), rng_seed=0)
        fn = handlers.trace(conditioned).get_trace(x)["obs"]["fn"]
        return fn.log_prob(y), fn.mean

    log_prob, mean = jax.vmap(noise_at)(draws)
    return jax.nn.logsumexp(log_prob, axis=0) - np.log(samples), mean.mean(0)


def analytic_log_prob(
    model: Callable, guide: DVIGuide, params: Parameters, x: np.ndarray, y: np.ndarray
) -> tuple[jax.Array, jax.Array]:
    """Log predictive density and predictive mean in closed form."""
    prediction = predict(model, guide, params, x)["obs"]
    return prediction.log_prob(y), prediction.mean
