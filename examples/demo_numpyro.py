"""The demo in NumPyro: the model, trained in closed form and by sampling, and under NUTS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer import MCMC, NUTS, TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO
from regression import Clock, Run, Split

from numpyro_moments import DeterministicELBO, DVIGuide, EmpiricalBayesNormal, fit, predict


def network(x: jax.Array, y: jax.Array | None = None) -> jax.Array:
    """An ordinary NumPyro model: 50 ReLUs, two outputs, the log variance of the noise being one."""
    out = layer("output", jax.nn.relu(layer("hidden", x, 50)), 2)
    with numpyro.plate("data", len(x)):
        noise = dist.Normal(out[..., 0], jnp.exp(0.5 * out[..., 1]))
        return numpyro.sample("obs", noise, obs=y)


def layer(name: str, x: jax.Array, outputs: int) -> jax.Array:
    weight = numpyro.sample(f"{name}.weight", EmpiricalBayesNormal([outputs, x.shape[-1]]))
    bias = numpyro.sample(f"{name}.bias", EmpiricalBayesNormal([outputs]))
    return x @ weight.T + bias


def runs(split: Split, options) -> Iterator[Run]:
    """One model, three ways of inference."""
    for label, elbo in (("DVI", DeterministicELBO()), ("MCVI", TraceMeanField_ELBO())):
        yield train(label, elbo, split, Clock(options.seconds))
    yield sample(split, options.nuts)


def train(label: str, elbo: ELBO, split: Split, clock: Clock) -> Run:
    data = split.x_train, split.y_train
    trained = fit(network, DVIGuide(), *data, objective=elbo, callback=clock, **Clock.UNTIL)
    prediction = predict(network, trained.guide, trained.params, split.x_test)["obs"]
    return clock.run(label, prediction, prediction.log_prob(split.y_test))


def sample(split: Split, draws: int) -> Run:
    """NUTS on the same model, with the predictive distribution as a mixture over its draws."""
    start = time.perf_counter()
    kernel = NUTS(network, max_tree_depth=8)
    chain = MCMC(kernel, num_warmup=draws, num_samples=draws, progress_bar=False)
    chain.run(random.key(0), jnp.asarray(split.x_train), jnp.asarray(split.y_train))
    means, variances, log_probs = jax.vmap(noise_at(split))(chain.get_samples())
    epistemic = means.var(0)
    log_prob = jax.nn.logsumexp(log_probs, axis=0) - np.log(len(log_probs))
    parts = means.mean(0), epistemic + variances.mean(0), epistemic, log_prob
    return Run("NUTS", *map(np.asarray, parts), [time.perf_counter() - start], [])


def noise_at(split: Split) -> Callable:
    """Mean, variance and log density of the test rows, given the weights."""

    def moments(weights: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        model = numpyro.handlers.condition(network, data=weights)
        trace = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(split.x_test)
        fn = trace["obs"]["fn"]
        return fn.mean, fn.variance, fn.log_prob(split.y_test)

    return moments
