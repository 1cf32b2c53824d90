"""Training of a network of heteroscedastic regression in NumPyro, some updates in a scan."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, TraceMeanField_ELBO, init_to_value
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam
from time_to_accuracy_data import BATCH, EVERY, HIDDEN, PRIORS, Posterior, Split

from numpyro_moments import DeterministicELBO, DVIGuide, EmpiricalBayesNormal


def normal(shape: list[int]) -> dist.Distribution:
    return dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))


PRIOR_OF = dict(zip(PRIORS, (partial(EmpiricalBayesNormal, alpha=1, beta=10), normal), strict=True))


def layer(prior: Callable, place: int, x: jax.Array, units: int) -> jax.Array:
    weight = numpyro.sample(f"weight{place}", prior([x.shape[-1], units]))
    return x @ weight + numpyro.sample(f"bias{place}", prior([units]))


def network(prior: Callable, weight: float, x: jax.Array, y: jax.Array) -> None:
    """Each row stands for several."""
    out = layer(prior, 1, jax.nn.relu(layer(prior, 0, x, HIDDEN)), 2)
    with numpyro.plate("data", len(x)), numpyro.handlers.scale(scale=weight):
        numpyro.sample("obs", dist.Normal(out[..., 0], jnp.exp(0.5 * out[..., 1])), obs=y)


class Training:
    """A network that is being trained."""

    def __init__(self, contender: str, split: Split, rate: float, options: Namespace) -> None:
        self.x, self.y = jnp.asarray(split.x), jnp.asarray(split.y)
        model = partial(network, PRIOR_OF[options.prior], split.weight)
        elbo = objective(contender)
        guide = DVIGuide if isinstance(elbo, DeterministicELBO) else AutoNormal
        start = {"init_loc_fn": init_to_value(values=split.start()), "init_scale": options.start}
        self.svi = SVI(model, guide(model, **start), Adam(rate), elbo)
        self.state = self.svi.init(jax.random.key(split.number), self.x[:BATCH], self.y[:BATCH])
        rows = jnp.zeros((EVERY, BATCH), int)
        self.run = jax.jit(self._updates).lower(self.state, self.x, self.y, rows).compile()

    def _updates(self, state: Any, x: jax.Array, y: jax.Array, batches: jax.Array) -> Any:
        def update(now: Any, rows: jax.Array) -> tuple[Any, None]:
            return self.svi.update(now, x[rows], y[rows])[0], None

        return jax.lax.scan(update, state, batches)[0]

    def advance(self, batches: np.ndarray) -> None:
        rows = jnp.asarray(batches, int)
        self.state = jax.block_until_ready(self.run(self.state, self.x, self.y, rows))

    def posterior(self) -> Posterior:
        found = {name: np.asarray(value) for name, value in self.svi.get_params(self.state).items()}
        names = [name.removesuffix("_auto_loc") for name in found if name.endswith("_auto_loc")]
        return {name: (found[f"{name}_auto_loc"], found[f"{name}_auto_scale"]) for name in names}


def objective(contender: str) -> ELBO:
    if contender in ("full", "diagonal"):
        return DeterministicELBO(covariance=contender)
    return TraceMeanField_ELBO()
