"""Steps in NumPyro under jax.jit: losses with their gradients, and trainings."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import host_numpyro as host
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from models import perceptron, standard
from numpyro.infer import SVI
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam
from time_to_accuracy_data import BATCH, EVERY, Split
from timing import Step


def activation(name: str) -> Callable[[jax.Array], jax.Array]:
    exact = partial(jax.nn.gelu, approximate=False)
    gelus = {"gelu": exact, "gelu (erf)": exact, "gelu (tanh)": jax.nn.gelu}
    return gelus.get(name) or getattr(jax.nn, name)


def network(sizes: tuple[int, ...], activation: Callable = jax.nn.relu) -> Callable:
    """A fully connected network with standard normal priors on all weights."""
    return partial(perceptron, host, standard(host), sizes, activation=activation)


def by_fan_in(site: dict) -> jax.Array:
    """Weights N(0, 1/fan-in), biases 0."""
    shape = site["fn"].event_shape
    if len(shape) == 1:
        return jnp.zeros(shape)
    return jax.random.normal(site["kwargs"]["rng_key"], shape) * shape[0] ** -0.5


def elbo_step(
    elbo: ELBO, guide: Callable, model: Callable, data: tuple, **options: Any
) -> tuple[Step, float]:
    """One loss with its gradients, as an SVI step computes them, and the seconds of compiling.

    Args:
        elbo: the loss.
        guide: the class of the guide.
        model: of the data.
        data: arguments of the model.
        options: of the guide.
    """
    svi = SVI(model, guide(model, **{"init_scale": 0.05} | options), Adam(1e-3), elbo)
    state = svi.init(jax.random.key(0), *data)

    def loss(parameters: dict, key: jax.Array, *data: jax.Array) -> jax.Array:
        constrained = svi.constrain_fn(parameters)
        return svi.loss.loss(key, constrained, svi.model, svi.guide, *data)

    gradients = jax.value_and_grad(loss)
    return timed(gradients, svi.optim.get_params(state.optim_state), state.rng_key, *data)


def updates(
    count: int, elbo: ELBO, guide: Callable, model: Callable, data: tuple
) -> tuple[Step, float]:
    """So many updates with Adam, one after another in a scan."""
    svi = SVI(model, guide(model, init_scale=0.05), Adam(1e-3), elbo)
    start = svi.init(jax.random.key(0), *data)

    def run(state: Any, x: jax.Array, y: jax.Array) -> Any:
        return jax.lax.scan(lambda now, _: svi.update(now, x, y), state, length=count)

    return timed(run, start, *data)


def plain_step(sizes: tuple[int, ...], activation: Callable, data: tuple) -> tuple[Step, float]:
    """Cross entropy of a network without distributions, with its gradients."""
    outputs = network(sizes, activation)

    def loss(parameters: dict, x: jax.Array, y: jax.Array) -> jax.Array:
        with numpyro.handlers.block():
            logits = numpyro.handlers.substitute(outputs, parameters)(x)
        log_probabilities = jax.nn.log_softmax(logits)
        return -jnp.sum(jnp.take_along_axis(log_probabilities, y[:, None], axis=-1))

    trace = numpyro.handlers.trace(numpyro.handlers.seed(outputs, jax.random.key(1)))
    sites = trace.get_trace(data[0])
    scale = 0.05  # of a usual initialisation
    parameters = {name: scale * site["value"] for name, site in sites.items()}
    return timed(jax.value_and_grad(loss), parameters, *data)


def timed(function: Callable, *arguments: Any) -> tuple[Step, float]:
    """A jitted function, and the seconds of its tracing and compiling."""
    step = jax.jit(function)
    start = time.perf_counter()
    jax.block_until_ready(step(*arguments))
    return lambda: jax.block_until_ready(step(*arguments)), time.perf_counter() - start


def peak(step: Step) -> None:
    """XLA does not say."""


class Training:
    """A network that is being trained, from the start of its split; some updates in a scan."""

    def __init__(
        self, elbo: ELBO, guide: Callable, model: Callable, split: Split, rate: float, scale: float
    ) -> None:
        self.x, self.y = jnp.asarray(split.x), jnp.asarray(split.y)
        start = host.init_to_value(values=split.start())
        made = guide(model, init_loc_fn=start, init_scale=scale)
        self.svi, rows = SVI(model, made, Adam(rate), elbo), jnp.zeros((EVERY, BATCH), int)
        key = jax.random.key(split.number)
        self.state = self.svi.init(key, self.x[:BATCH], self.y[:BATCH])
        self.run = jax.jit(self._updates).lower(self.state, self.x, self.y, rows).compile()

    def _updates(self, state: Any, x: jax.Array, y: jax.Array, batches: jax.Array) -> Any:
        def update(now: Any, rows: jax.Array) -> tuple[Any, None]:
            return self.svi.update(now, x[rows], y[rows])[0], None

        return jax.lax.scan(update, state, batches)[0]

    def advance(self, batches: np.ndarray) -> None:
        rows = jnp.asarray(batches, int)
        self.state = jax.block_until_ready(self.run(self.state, self.x, self.y, rows))

    def posterior(self) -> dict[str, tuple]:
        """Locations and scales by site."""
        return host.located(self.svi.get_params(self.state))
