"""The scale of Normal noise by type-II maximum likelihood: after an epoch, or in the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.infer.elbo import ELBO
from numpyro.primitives import Messenger

from moment_inference.optimisation import batches, best_variance, profiled, scale_of_noise
from numpyro_moments.svi import SVI

Loss = Callable[[dict[str, Any]], jax.Array]  # of the constrained parameters


class HeldParameter(Messenger):
    """Handler that keeps a parameter from the optimiser, as state that may be set."""

    def __init__(self, fn: Callable, name: str) -> None:
        super().__init__(fn)
        self.name = name

    def process_message(self, msg: Any) -> None:
        """Make the parameter a mutable site."""
        if msg["type"] == "param" and msg["name"] == self.name:
            msg["type"] = "mutable"


def derivatives_by_log_parameter(
    loss: Loss, values: Mapping[str, Any], name: str, order: int
) -> list[jax.Array]:
    """Return the loss and its derivatives by the logarithm of a parameter."""

    def derivatives(order: int, shift: jax.Array) -> Any:
        if not order:
            value = loss({**values, name: values[name] * jnp.exp(shift)})
            return (value,)
        lower, slopes = jax.jvp(lambda at: derivatives(order - 1, at), (shift,), (one,))
        return *lower, slopes[-1]

    one = jnp.ones((), jnp.result_type(values[name]))
    return [*derivatives(order, 0 * one)]


@dataclass(frozen=True)
class NoiseScale:
    """The parameter that is the scale of the noise, and the loss that tells its best value."""

    name: str
    start: jax.Array
    objective: Any
    model: Callable  # keeps the parameter from the optimiser
    guide: Callable
    profiled: batches.Arguments | None = None  # all data, if the best scale is put into the loss

    def best(self, values: Mapping[str, Any], data: batches.Arguments) -> jax.Array:
        """Return the best scale for parameters and data."""
        args, kwargs = data

        def loss(values: dict[str, Any]) -> jax.Array:
            key = jax.random.key(0)
            return self.objective.loss(key, values, self.model, self.guide, *args, **kwargs)

        _, *derivatives = derivatives_by_log_parameter(
            loss, {self.name: self.start, **values}, self.name, 2
        )
        return values.get(self.name, self.start) * best_variance(*derivatives) ** 0.5

    def in_state(self, state: Any, params: Mapping[str, Any], data: batches.Arguments) -> Any:
        """Return a state of an SVI with the best scale for its parameters and data."""
        mutable = state.mutable_state
        best = self.best({**params, **mutable}, data).astype(mutable[self.name].dtype)
        return state._replace(mutable_state={**mutable, self.name: best})


class ProfiledELBO(ELBO):
    """An ELBO with the best scale of the noise put into it."""

    def __init__(self, noise: NoiseScale) -> None:
        super().__init__(num_particles=noise.objective.num_particles)
        self.noise = noise
        self.in_closed_form = getattr(noise.objective, "in_closed_form", False)
        self.propagation = getattr(noise.objective, "propagation", None)

    def loss_with_mutable_state(
        self, rng_key: Any, param_map: dict[str, Any], model: Any, guide: Any, *args: Any, **kw: Any
    ) -> dict[str, Any]:
        """Return the loss at the best scale, and this scale as state."""
        noise = self.noise

        def loss(values: dict[str, Any]) -> jax.Array:
            return noise.objective.loss(rng_key, values, model, guide, *args, **kw)

        parts = derivatives_by_log_parameter(
            loss, {**param_map, noise.name: noise.start}, noise.name, 2
        )
        best = noise.start * best_variance(*parts[1:]) ** 0.5
        return {"loss": profiled(jnp.log, *parts), "mutable_state": {noise.name: best}}


def held_scale(svi: SVI, mode: str, key: Any, data: batches.Arguments) -> tuple[SVI, NoiseScale]:
    """Return an SVI that does not train the scale of the noise, and which scale this is."""
    args, kwargs = data
    state = svi.init(key, *args, **kwargs)
    values = {**svi.get_params(state), **(state.mutable_state or {})}
    found = _derivatives(svi.loss, values, (svi.model, svi.guide), args, kwargs)
    name = scale_of_noise(found, framework="numpyro")
    model = HeldParameter(svi.model, name)
    whole = data if mode == "profile" else None
    noise = NoiseScale(name, values[name], svi.loss, model, svi.guide, whole)
    loss = svi.loss if whole is None else ProfiledELBO(noise)
    return SVI(model, svi.guide, svi.optim, loss), noise


def _derivatives(
    objective: Any, values: dict[str, Any], programs: tuple, args: tuple, kwargs: dict
) -> dict[str, list[float]]:
    """Return derivatives of the loss by the logarithm of each positive number of the model."""
    model, guide = programs
    traced = handlers.trace(handlers.seed(model, 0))
    jax.eval_shape(lambda: (traced.get_trace(*args, **kwargs), None)[1])
    names = [name for name, site in traced.trace.items() if site["type"] == "param"]
    names = [name for name in names if jnp.size(values[name]) == 1 and values[name].min() > 0]

    @jax.jit
    def derivatives(values: dict[str, Any]) -> dict[str, list[jax.Array]]:
        def loss(values: dict[str, Any]) -> jax.Array:
            return objective.loss(jax.random.key(0), values, model, guide, *args, **kwargs)

        return {name: derivatives_by_log_parameter(loss, values, name, 3)[1:] for name in names}

    return {name: [part.item() for part in parts] for name, parts in derivatives(values).items()}
