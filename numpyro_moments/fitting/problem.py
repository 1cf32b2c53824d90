"""Evaluate a training's objective: weighted losses, ELBO terms, held-out score, check.

The trainers of :mod:`.fit` and :mod:`.gradients` ask this object, which adds what is of NumPyro
to :class:`~moment_inference.FitTask`: handlers that weight sites, and compiled programs.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.primitives import Messenger

from moment_inference import FitTask
from moment_inference.objectives import SEED, Evaluations
from moment_inference.optimisation import (
    DeterministicLoss,
    Fit,
    PlateScaling,
    batches,
    weight_site,
)
from numpyro_moments.evaluation.arguments import Static, apart
from numpyro_moments.evaluation.failure_causes import refuse_nonfinite_inputs
from numpyro_moments.evaluation.programs import QUICK, Programs
from numpyro_moments.fitting.flat_loss import FlatLoss
from numpyro_moments.fitting.precision import NoiseScale
from numpyro_moments.objectives.base import Program
from numpyro_moments.prediction.predict import log_predictive
from numpyro_moments.sites.traces import Part
from numpyro_moments.svi import SVI


class SiteScaling(Messenger):
    """Handler that rescales a mini-batch to the full data and weights latent sites."""

    def __init__(
        self, fn: Callable, plates: PlateScaling | None, batch_size: int | None, kl_weight: Any
    ) -> None:
        super().__init__(fn)
        self.plates, self.batch_size, self.kl_weight = plates, batch_size, kl_weight

    def process_message(self, msg: Any) -> None:
        """Weight a site."""
        if msg["type"] == "sample":
            weight_site(msg, self.plates, self.batch_size, self.kl_weight, _with_full_size)


def _with_full_size(frame: Any, rows: Any) -> Part:
    return Part(frame.name, frame.dim, frame.size, rows)


@dataclass(frozen=True, kw_only=True)
class Problem(FitTask):
    """A training's model, guide and objective, with the weights of its steps."""

    svi: Any = None  # of model, guide and objective, once they have started
    noise: NoiseScale | None = None  # a scale that the optimiser does not train

    def program(
        self, data: batches.Arguments, parameters: dict[str, Any], batch_size: int | None = None
    ) -> Program:
        """Return the program that is trained, with all data or a mini-batch."""
        svi = self.weighted(batch_size, None)
        return Program(svi.model, svi.guide, *data, parameters)

    def values(
        self, params: dict[str, Any], mutable: Any = None, data: batches.Arguments | None = None
    ) -> dict[str, Any]:
        """Return the values of unconstrained parameters and of mutable sites by name."""
        values, noise = {**self.svi.constrain_fn(params), **(mutable or {})}, self.noise
        if noise is not None and noise.profiled:
            data = data or batches.first_arguments(self.source)
            values[noise.name] = noise.best(self.program(data, values))
        return values

    def after_epoch(self, state: Any, data: batches.Arguments) -> Any:
        """Return a state with the scale of the noise that is best for all data."""
        assert self.noise is not None
        name, mutable = self.noise.name, state.mutable_state
        params = self.svi.constrain_fn(self.svi.optim.get_params(state.optim_state))
        best = self.noise.best(self.program(data, {**params, **mutable}))
        best = best.astype(mutable[name].dtype)
        return state._replace(mutable_state={**mutable, name: best})

    def update(
        self, state: Any, data: batches.Arguments, batch_size: int | None, kl_weight: Any
    ) -> Any:
        """Take one step; return the next state, and the loss before it."""
        args, kwargs = data
        outcome = self.weighted(batch_size, kl_weight).update(state, *args, **kwargs)
        if self.plates is not None:
            self.plates.check_observed()
        return outcome

    def weighted(self, batch_size: int | None, kl_weight: Any) -> SVI:
        """Return model and guide with the weights of one step."""
        plates = None if batch_size is None else self.plates
        if plates is None and kl_weight is None:
            return self.svi
        svi = copy.copy(self.svi)
        svi.model = SiteScaling(svi.model, plates, batch_size, kl_weight)
        if kl_weight is not None:
            svi.guide = SiteScaling(svi.guide, None, batch_size, kl_weight)
        return svi

    def terms(
        self, params: dict[str, Any], mutable: Any, data: batches.Arguments, batch_size: int | None
    ) -> dict[str, float]:
        """Return the terms of the ELBO by site; empty if the objective has none."""
        if not hasattr(self.objective, "sum_sites"):
            return {}
        loss = copy.copy(self.objective)
        loss.sum_sites = False
        arrays, rest = apart(data)

        def terms(params: dict[str, Any], mutable: Any, arrays: list) -> Any:
            given = rest.joined(arrays)
            program = self.program(given, self.values(params, mutable, given), batch_size)
            return program.loss(loss, jax.random.key(0))

        name = "terms", rest.structure, batch_size
        losses = self.programs(rest).run(name, terms, params, mutable, arrays)
        return {name: -float(loss) for name, loss in losses.items()}

    def programs(self, rest: Static) -> Programs:
        """Return compiled programs with this rest of the data."""
        if rest not in self._programs:
            svi = self.svi
            owners = svi.model, svi.guide, svi.loss, svi.optim, svi.constrain_fn, svi.static_kwargs
            # The state of the plates is that before a program is traced, which changes it.
            self._programs[rest] = Programs(*owners, self.plates, rest.leaves)
        return self._programs[rest]

    @cached_property
    def _programs(self) -> dict[Static, Programs]:
        return {}

    @cached_property
    def score(self) -> Callable[..., Any]:
        """The held-out log-likelihood of unconstrained parameters and mutable state."""
        arrays, rest = apart(self.held_out)

        def score(params: dict[str, Any], mutable: Any, arrays: list) -> Any:
            svi, (args, kwargs) = self.svi, rest.joined(arrays)
            call = svi.model, svi.guide, self.values(params, mutable), *args
            return log_predictive(self.propagation, *call, **kwargs)

        compiled = jax.jit(score)
        return lambda params, mutable: self.summed(partial(compiled, params, mutable), arrays)

    def held_terms(self, fit: Fit) -> tuple[list[str], int] | None:
        """Return the sites with terms by held draws, and the number of draws; None if none."""
        found: dict[str, int] = {}
        noting, key = self.objective.with_held(held_sites=found), jax.random.key(0)
        program = self.program((self.source.args, self.source.kwargs), fit.params)
        jax.eval_shape(lambda: program.loss(noting, key))
        return ([*found], max(found.values())) if found else None

    def losses_at(
        self, fit: Fit, objectives: list[Any]
    ) -> tuple[list[DeterministicLoss], np.ndarray]:
        """Return losses of all data by objectives, and a fit's parameters as a vector."""
        program = self.program((self.source.args, self.source.kwargs), {})
        call = self.svi.constrain_fn, jax.random.key(0)
        losses = [FlatLoss(program, objective, *call) for objective in objectives]
        for loss in losses[1:]:
            loss.__dict__["programs"] = losses[0].programs  # the draws are an argument of these
        flat, unravel = ravel_pytree(self.svi.constrain_fn(fit.params, invert=True))
        return [loss.objective(flat, unravel) for loss in losses], np.asarray(flat, np.float64)

    def explain(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Raise UnsupportedMoments if arguments make the loss infinite."""
        self.svi.init(jax.random.key(0), *args, **kwargs)  # checks the observations
        refuse_nonfinite_inputs(self.svi.model, args, kwargs)

    def evaluations(self, params: Any, is_last: bool) -> Evaluations:
        """Return what evaluates the objective in closed form and by draws."""
        objective, batch_size = self.objective, self.source.size
        options = QUICK if jax.default_backend() == "cpu" else None
        key_of = partial(jax.random.fold_in, jax.random.key(SEED))

        def run(name: Any, compute: Callable[..., Any], data: batches.Arguments, key: Any) -> Any:
            arrays, rest = apart(data)

            def evaluated(params: dict[str, Any], key: Any, given: list | None) -> Any:
                data = rest.joined(arrays if given is None else given)
                return compute(key, self.program(data, params, batch_size))

            name = *name, rest.structure, batch_size
            return self.programs(rest).run_on(arrays, name, evaluated, params, key, options=options)

        def particles(
            data: batches.Arguments, count: int, call_index: int
        ) -> tuple[np.ndarray, ...]:
            sampled = partial(_sampled_terms, objective, count)
            parts = run(("sampled", count), sampled, data, key_of(call_index))
            return tuple(np.asarray(part, np.float64) for part in parts)

        def loss(data: batches.Arguments, call_index: int) -> float:
            compute = lambda key, program: program.loss(objective, key)  # noqa: E731
            return float(run(("closed",), compute, data, key_of(call_index)))

        return Evaluations(particles, loss, is_last, compiles=True)


def _sampled_terms(objective: Any, count: int, key: Any, program: Program) -> tuple:
    with contextlib.suppress(Exception):  # dependent sites, or no exact moments
        conditional = objective.by_draws(count, objective.sites_to_draw(key, program))
        return conditional.particle_terms(key, program)[0]
    return objective.by_draws(count).particle_terms(key, program)[0]
