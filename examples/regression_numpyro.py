"""The network of the regression examples in NumPyro: model, guide, training and predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO
from regression import FAMILIES, Schedule, Split, groups_of

from numpyro_moments import (
    DeterministicELBO,
    DVIGuide,
    EmpiricalBayesNormal,
    Fit,
    TridiagonalGuide,
    fit,
    predict,
)

Parameters = dict[str, jax.Array]


def heteroscedastic_network(hidden: int) -> Callable:
    """One hidden ReLU layer and two outputs: the location and the log variance of the noise.

    Every weight matrix and bias vector has an empirical-Bayes prior of its own.
    """

    def model(x: jax.Array, y: jax.Array | None = None) -> jax.Array:
        out = bayesian_linear("output", jax.nn.relu(bayesian_linear("hidden", x, hidden)), 2)
        loc, scale = out[..., 0], jnp.exp(0.5 * out[..., 1])
        with numpyro.plate("data", len(x)):
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


def make_guide(model: Callable, family: str = "mean field") -> DVIGuide:
    """A posterior that starts almost certain: noise in the weights hides the data at first."""
    start, options = {"init_loc_fn": init_with_spread_kinks, "init_scale": 0.01}, FAMILIES[family]
    if options is None:
        return DVIGuide(model, **start)
    return TridiagonalGuide(model, **start, **options)


METHODS = {
    "dvi": lambda: DeterministicELBO(covariance="full"),
    "ddvi": lambda: DeterministicELBO(covariance="diagonal"),
    "mcvi": lambda: TraceMeanField_ELBO(num_particles=10),
}


def train_and_predict(
    split: Split,
    method: str,
    family: str,
    hidden: int,
    schedule: Schedule,
    progress_bar: bool | None,
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Log density and mean of the test rows, and the groups of a tridiagonal guide."""
    model = heteroscedastic_network(hidden)
    guide = make_guide(model, family)
    params = train(METHODS[method](), model, guide, split, schedule, progress_bar).params
    log_prob = sampled_log_prob if method == "mcvi" else analytic_log_prob
    found, mean = log_prob(model, guide, params, split.x_test, split.y_test)
    groups = groups_of(guide.summary(params)) if isinstance(guide, TridiagonalGuide) else {}
    return np.asarray(found), np.asarray(mean), groups


def train(
    elbo: ELBO,
    model: Callable,
    guide: DVIGuide,
    split: Split,
    schedule: Schedule,
    progress_bar: bool | None = None,
) -> Fit:
    """Train on mini-batches; the learning rate rises over the first 30 % of the steps, then falls
    to zero."""
    return fit(
        model,
        guide,
        split.x_train,
        split.y_train,
        objective=elbo,
        steps=schedule.steps,
        batch_size=schedule.batch_size,
        learning_rate=optax.cosine_onecycle_schedule(schedule.steps, schedule.learning_rate),
        every=1000,
        kl_warm_up=schedule.kl_warm_up,
        seed=schedule.seed,
        progress_bar=progress_bar,
    )


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
