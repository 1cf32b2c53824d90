"""Evaluate a training's objective: weighted losses, ELBO terms, held-out score, check."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from numpyro.primitives import Messenger

from moment_calculus.predictions.blocks import Rows, rows_of_a_sum, sum_of_rows
from moment_calculus.rulebooks import propagation_of
from moment_inference.objectives.by_draws import SEED, Evaluations, loss_by_draws
from moment_inference.optimisation.batches import AllData, Arguments
from moment_inference.optimisation.options import Options
from moment_inference.optimisation.outcome import ByDraws, Fit
from moment_inference.optimisation.weighting import PlateScaling, weight_site
from numpyro_moments.evaluation.arguments import Static, apart
from numpyro_moments.evaluation.programs import QUICK, Programs
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


@dataclass(frozen=True)
class Problem:
    """A training's model, guide, objective and held-out data."""

    svi: SVI  # of model, guide and objective
    plates: PlateScaling | None = None  # None: all data at once
    held_out: Arguments | None = None  # arguments of the model
    noise: NoiseScale | None = None  # a scale that the optimiser does not train

    @property
    def objective(self) -> Any:
        """The user's objective."""
        return self.svi.loss if self.noise is None else self.noise.objective

    def values(self, params: dict[str, Any], mutable: Any = None) -> dict[str, Any]:
        """Return the values of unconstrained parameters and of mutable sites by name."""
        values, noise = {**self.svi.constrain_fn(params), **(mutable or {})}, self.noise
        if noise is not None and noise.profiled is not None:
            values[noise.name] = noise.best(values, noise.profiled)
        return values

    def after_epoch(self, state: Any, data: Arguments) -> Any:
        """Return a state with the scale of the noise that is best for all data."""
        assert self.noise is not None
        params = self.svi.constrain_fn(self.svi.optim.get_params(state.optim_state))
        return self.noise.in_state(state, params, data)

    def update(self, state: Any, data: Arguments, batch_size: int | None, kl_weight: Any) -> Any:
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
        self, params: dict[str, Any], mutable: Any, data: Arguments, batch_size: int | None
    ) -> dict[str, float]:
        """Return the terms of the ELBO by site; empty if the objective has none."""
        if not hasattr(self.objective, "sum_sites"):
            return {}
        loss = copy.copy(self.objective)
        loss.sum_sites = False
        arrays, rest = apart(data)

        def terms(params: dict[str, Any], mutable: Any, arrays: list) -> Any:
            svi, (args, kwargs) = self.weighted(batch_size, None), rest.joined(arrays)
            values = self.values(params, mutable)
            return loss.loss(jax.random.key(0), values, svi.model, svi.guide, *args, **kwargs)

        name = "terms", rest.structure, batch_size
        losses = self.programs(rest).run(name, terms, params, mutable, arrays)
        return {name: -float(loss) for name, loss in losses.items()}

    def programs(self, rest: Static) -> Programs:
        """Return compiled programs with this rest of the data, kept if there are no plates."""
        if rest not in self._programs:
            # Scaling by plates looks at what it meets while a program is traced.
            programs = (
                Programs.alone() if self.plates else Programs(*made_of(self.svi), rest.leaves)
            )
            self._programs[rest] = programs
        return self._programs[rest]

    @cached_property
    def _programs(self) -> dict[Static, Programs]:
        return {}

    def score(self, params: dict[str, Any], mutable: Any = None) -> Any:
        """Return the held-out log-likelihood of unconstrained parameters."""
        return self._score(params, mutable)

    @cached_property
    def _score(self) -> Any:
        assert self.held_out is not None
        arrays, rest = apart(self.held_out)
        propagation = getattr(self.svi.loss, "propagation", None) or propagation_of(None, "exact")
        at_once: list[int | None] = []  # rows, once they are known

        def score(params: dict[str, Any], mutable: Any, arrays: list) -> Any:
            svi, (args, kwargs) = self.svi, rest.joined(arrays)
            values = self.values(params, mutable)
            return log_predictive(propagation, svi.model, svi.guide, values, *args, **kwargs)

        compiled = jax.jit(score)

        def summed(params: dict[str, Any], mutable: Any) -> Any:
            rows = Rows.of(arrays, partial(compiled, params, mutable))
            at_once[:] = at_once or [rows_of_a_sum(rows, propagation.memory_limit)]
            return sum_of_rows(rows, *at_once)

        return summed


def made_of(svi: SVI) -> tuple[Any, ...]:
    """Return what the programs of a training depend on beside the shapes of their arguments."""
    return svi.model, svi.guide, svi.loss, svi.optim, svi.constrain_fn, svi.static_kwargs


def trained_loss_by_draws(
    problem: Problem, source: AllData, options: Options, fit: Fit, select_rows: Callable
) -> ByDraws:
    """Return the trained loss by Monte Carlo; ``select_rows`` takes rows of an array."""

    def evaluations_on(part: AllData, is_last: bool) -> Evaluations:
        plates = PlateScaling(options.rows_of(part), options.plate)
        subset_problem = problem if part is source else replace(problem, plates=plates)
        return _evaluations_of(subset_problem, part, fit.params, is_last)

    return loss_by_draws(fit, problem.objective, source, options, select_rows, evaluations_on)


def _evaluations_of(
    problem: Problem, source: AllData, params: dict[str, Any], is_last: bool
) -> Evaluations:
    objective, batch_size = problem.objective, source.size
    # The state of the plates is that before a program is traced.
    owners, plates = made_of(problem.svi), problem.plates
    kept: dict[Static, Programs] = {}
    options = QUICK if jax.default_backend() == "cpu" else None
    key_of = partial(jax.random.fold_in, jax.random.key(SEED))

    def run(name: Any, compute: Callable[[Any, Program], Any], data: Arguments, key: Any) -> Any:
        arrays, rest = apart(data)
        if rest not in kept:
            kept[rest] = Programs(*owners, plates, rest.leaves)

        def evaluated(params: dict[str, Any], key: Any, given: list | None) -> Any:
            args, kwargs = rest.joined(arrays if given is None else given)
            weighted = problem.weighted(batch_size, None)
            program = Program(weighted.model, weighted.guide, args, kwargs, params)
            return compute(key, program)

        name = *name, rest.structure, batch_size
        return kept[rest].run_on(arrays, name, evaluated, params, key, options=options)

    def particles(data: Arguments, count: int, call_index: int) -> tuple[np.ndarray, ...]:
        def sampled(key: Any, program: Program) -> tuple[jax.Array, ...]:
            with contextlib.suppress(Exception):  # dependent sites, or no exact moments
                conditional = objective.by_draws(count, objective.sites_to_draw(key, program))
                return conditional.particle_terms(key, program)[0]
            return objective.by_draws(count).particle_terms(key, program)[0]

        parts = run(("sampled", count), sampled, data, key_of(call_index))
        return tuple(np.asarray(part, np.float64) for part in parts)

    def loss(data: Arguments, call_index: int) -> float:
        def closed(key: Any, program: Program) -> jax.Array:
            call = program.model, program.guide, *program.args
            return objective.loss(key, program.parameters, *call, **program.kwargs)

        return float(run(("closed",), closed, data, key_of(call_index)))

    return Evaluations(particles, loss, is_last, compiles=True)
