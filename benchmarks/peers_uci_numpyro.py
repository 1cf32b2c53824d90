"""NumPyro's contenders of `peers_uci.py`: this library, AutoNormal, NUTS."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Predictive, TraceMeanField_ELBO, init_to_feasible
from numpyro.infer.autoguide import AutoNormal
from numpyro.optim import Adam
from peers import timed
from peers_uci import DRAWS, HIDDEN, RATE, STEPS, Found, mixture
from regression import Split

from numpyro_moments import DVIGuide, fit, predict

CHAIN = 250  # draws of NUTS, after as many of warm-up


def layer(name: str, x: jax.Array, outputs: int) -> jax.Array:
    """A linear layer with weights N(0, 1)."""
    shape = [x.shape[-1], outputs]
    weight = numpyro.sample(f"{name}.weight", dist.Normal(0.0, 1.0).expand(shape).to_event(2))
    bias = numpyro.sample(f"{name}.bias", dist.Normal(0.0, 1.0).expand([outputs]).to_event(1))
    return x @ weight + bias


def network(x: Any, y: Any = None) -> None:
    """Mean and log variance of y."""
    out = layer("last", jax.nn.relu(layer("first", x, HIDDEN)), 2)
    loc, scale = out[..., 0], jnp.exp(0.5 * out[..., 1])
    numpyro.deterministic("both", jnp.stack([loc, scale]))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(loc, scale), obs=y)


def ours(data: Split, number: int) -> Found:
    """All defaults."""
    arguments = data.x_train, data.y_train
    result, seconds = timed(
        lambda: fit(network, DVIGuide(), *arguments, seed=number, progress_bar=False)
    )
    return Found(seconds, predict(network, result, data.x_test)["y"].log_prob(data.y_test))


def autonormal(data: Split, number: int) -> Found:
    """Adam on a draw a step, as many steps as ours makes. It starts where Pyro's AutoNormal does:
    from NumPyro's own start, uniform in ±2, the loss of yacht overflows to NaN."""
    guide = AutoNormal(network, init_loc_fn=init_to_feasible)
    svi = SVI(network, guide, Adam(RATE), TraceMeanField_ELBO())
    arguments = data.x_train, data.y_train

    def run() -> Any:
        key = jax.random.key(number)
        return jax.block_until_ready(svi.run(key, STEPS, *arguments, progress_bar=False).params)

    params, seconds = timed(run)
    draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(DRAWS,))
    return _of_weights(seconds, data, draws)


def nuts(data: Split, number: int) -> Found:
    """One chain of exact draws."""
    chain = MCMC(NUTS(network), num_warmup=CHAIN, num_samples=CHAIN, progress_bar=False)

    def run() -> dict[str, jax.Array]:
        chain.run(jax.random.key(number), data.x_train, data.y_train)
        return jax.block_until_ready(chain.get_samples())

    samples, seconds = timed(run)
    return _of_weights(seconds, data, {k: v for k, v in samples.items() if k != "both"})


def _of_weights(seconds: float, data: Split, draws: dict[str, jax.Array]) -> Found:
    both = np.asarray(Predictive(network, draws)(jax.random.key(2), data.x_test)["both"])
    return mixture(seconds, data, both[:, 0], both[:, 1])
