"""NumPyro's contenders of `peers.py`: this library, NUTS, AutoNormal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Predictive, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.optim import Adam
from peers import DRAWS, HIDDEN, RATE, WEIGHT_SCALE, Found, Split, of_draws, timed, until_flat

from numpyro_moments import DVIGuide, fit, linear_response, predict


def normal(name: str, scale: float, *shape: int) -> jax.Array:
    """A site of independent Normals."""
    return numpyro.sample(name, dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))


def regression(x: Any, y: Any = None) -> None:
    """A line."""
    mean = x @ normal("weights", 1.0, 10) + normal("bias", 1.0)
    _observe(mean, y)


def network(x: Any, y: Any = None) -> None:
    """One hidden layer."""
    first = x @ normal("first", WEIGHT_SCALE, 10, HIDDEN)
    hidden = jax.nn.relu(first + normal("bias", WEIGHT_SCALE, HIDDEN))
    _observe(hidden @ normal("last", WEIGHT_SCALE, HIDDEN) + normal("offset", WEIGHT_SCALE), y)


def _observe(mean: jax.Array, y: Any) -> None:
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    numpyro.deterministic("mean", mean)
    with numpyro.plate("rows", mean.shape[-1]):
        numpyro.sample("obs", dist.Normal(mean, noise), obs=y)


MODELS: dict[str, Callable] = {"regression": regression, "network": network}


def ours(task: str, data: Split) -> Found:
    """Newton's method and linear response of the regression, L-BFGS of the network."""
    model, arguments = MODELS[task], (data.x, data.y)
    method = "newton" if task == "regression" else "lbfgs"

    def run() -> tuple:
        result = fit(model, DVIGuide(), *arguments, method=method, float64=True, by_draws=False)
        linear = task == "regression"
        return result, linear_response(model, result, *arguments) if linear else None

    (result, response), seconds = timed(run)
    found = response.predict(data.x_test) if response else predict(model, result, data.x_test)
    deviations = response.standard_deviation("weights") if response else None
    prediction = found["obs"]
    return Found(seconds, prediction.log_prob(data.y_test), prediction.interval(0.9), deviations)


def nuts(task: str, data: Split) -> Found:
    """One chain."""
    chain = MCMC(NUTS(MODELS[task]), num_warmup=DRAWS, num_samples=DRAWS, progress_bar=False)
    _, seconds = timed(lambda: jax.block_until_ready(_run(chain, data)))
    samples = chain.get_samples()
    deviations = samples["weights"].std(0) if task == "regression" else None
    return _drawn(task, seconds, data, samples, deviations)


def _run(chain: MCMC, data: Split) -> dict:
    chain.run(jax.random.key(0), data.x, data.y)
    return chain.get_samples()


def autonormal(task: str, data: Split) -> Found:
    """Adam on a draw a step."""
    guide = AutoNormal(MODELS[task])
    svi = SVI(MODELS[task], guide, Adam(RATE), TraceMeanField_ELBO())

    def run() -> Any:
        state = svi.init(jax.random.key(0), data.x, data.y)
        update = jax.jit(svi.update)

        def step() -> float:
            nonlocal state
            state, loss = update(state, data.x, data.y)
            return float(loss)

        until_flat(step)
        return svi.get_params(state)

    params, seconds = timed(run)
    draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(DRAWS,))
    deviations = params["weights_auto_scale"] if task == "regression" else None
    return _drawn(task, seconds, data, draws, deviations)


def _drawn(task: str, seconds: float, data: Split, samples: dict, deviations: Any) -> Found:
    sites = {name: part for name, part in samples.items() if name != "mean"}
    found = Predictive(MODELS[task], sites)(jax.random.key(2), data.x_test)
    return of_draws(seconds, data, found["mean"], np.asarray(samples["noise"])[:, None], deviations)
