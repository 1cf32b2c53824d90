"""The scale of Normal noise by type-II maximum likelihood: after an epoch, or in the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.infer.elbo import ELBO
from numpyro.primitives import Messenger

from moment_inference.optimisation import batches, precision
from numpyro_moments.objectives.base import Program
from numpyro_moments.svi import SVI


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
    objective: Any, key: Any, program: Program, name: str, order: int
) -> list[jax.Array]:
    """Return a program's loss and its derivatives by the logarithm of a parameter."""
    values = program.parameters

    def derivatives(order: int, shift: jax.Array) -> Any:
        if not order:
            moved = {**values, name: values[name] * jnp.exp(shift)}
            return (program._replace(parameters=moved).loss(objective, key),)
        lower, slopes = jax.jvp(lambda at: derivatives(order - 1, at), (shift,), (one,))
        return *lower, slopes[-1]

    one = jnp.ones((), jnp.result_type(values[name]))
    return [*derivatives(order, 0 * one)]


@dataclass(frozen=True)
class NoiseScale:
    """The parameter that is the scale of the noise, and how its best value is found."""

    name: str
    start: jax.Array
    objective: Any  # that tells its best value
    profiled: bool  # whether the best scale is put into the loss

    def best(self, program: Program) -> jax.Array:
        """Return the best scale for the parameters and data of a program."""
        values = {self.name: self.start, **program.parameters}
        return self.loss_and_best(jax.random.key(0), program._replace(parameters=values))[1]

    def loss_and_best(self, key: Any, program: Program) -> tuple[jax.Array, jax.Array]:
        """Return the loss with the best scale put into it, and this scale."""
        parts = derivatives_by_log_parameter(self.objective, key, program, self.name, 2)
        best = program.parameters[self.name] * precision.best_variance(*parts[1:]) ** 0.5
        return precision.profiled(jnp.log, *parts), best


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
        name, start = self.noise.name, self.noise.start
        program = Program(model, guide, args, kw, {**param_map, name: start})
        loss, best = self.noise.loss_and_best(rng_key, program)
        return {"loss": loss, "mutable_state": {name: best}}


def held_scale(svi: SVI, mode: str, key: Any, data: batches.Arguments) -> tuple[SVI, NoiseScale]:
    """Return an SVI that does not train the scale of the noise, and which scale this is."""
    args, kwargs = data
    state = svi.init(key, *args, **kwargs)
    values = {**svi.get_params(state), **(state.mutable_state or {})}
    found = _derivatives(svi.loss, Program(svi.model, svi.guide, args, kwargs, values))
    name = precision.scale_of_noise(found, framework="numpyro")
    noise = NoiseScale(name, values[name], svi.loss, mode == "profile")
    loss = ProfiledELBO(noise) if noise.profiled else svi.loss
    return SVI(HeldParameter(svi.model, name), svi.guide, svi.optim, loss), noise


def _derivatives(objective: Any, program: Program) -> dict[str, list[float]]:
    """Return derivatives of the loss by the logarithm of each positive number of the model."""
    model, _, args, kwargs, values = program
    traced = handlers.trace(handlers.seed(model, 0))
    jax.eval_shape(lambda: (traced.get_trace(*args, **kwargs), None)[1])
    names = [name for name, site in traced.trace.items() if site["type"] == "param"]
    names = [name for name in names if jnp.size(values[name]) == 1 and values[name].min() > 0]

    @jax.jit
    def derivatives(values: dict[str, Any]) -> dict[str, list[jax.Array]]:
        how = objective, jax.random.key(0), program._replace(parameters=values)
        return {name: derivatives_by_log_parameter(*how, name, 3)[1:] for name in names}

    return {name: [part.item() for part in parts] for name, parts in derivatives(values).items()}
