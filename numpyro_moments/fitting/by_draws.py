"""Check a trained loss by draws, once at the end of a fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from moment_calculus.objectives.by_draws import (
    SEED,
    Evaluations,
    check_first_possible,
    check_loss,
    is_last,
    why_not_checked,
)
from moment_calculus.optimisation.batches import AllData, Arguments
from moment_calculus.optimisation.options import Options
from moment_calculus.optimisation.outcome import ByDraws, Fit
from moment_calculus.optimisation.weighting import PlateScaling
from numpyro_moments.fitting.problem import Problem, Static, apart
from numpyro_moments.objectives.base import Program

# Compilation takes longer than the run: with these options 0.3 instead of 3.4 s for a
# network of two layers.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


def loss_by_draws(
    problem: Problem, source: AllData, options: Options, fit: Fit, take: Callable
) -> ByDraws:
    """Return the trained loss by draws; ``take`` picks rows of an array."""
    if reason := why_not_checked(fit, problem.svi.loss, source):
        return ByDraws(note=reason)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training has issued them

        def check(part: AllData) -> ByDraws:
            plates = PlateScaling(options.rows_of(part), options.plate)
            checked_problem = problem if part is source else replace(problem, plates=plates)
            evaluations = _evaluations(
                checked_problem, part, fit.params, is_last(fit, part, options)
            )
            return check_loss(fit, problem.svi.loss, part, evaluations)

        return check_first_possible(source, take, check)


def _evaluations(
    problem: Problem, source: AllData, params: dict[str, Any], last: bool
) -> Evaluations:
    objective = problem.svi.loss
    quick = partial(jax.jit, compiler_options=QUICK if jax.default_backend() == "cpu" else None)

    def program(params: dict[str, Any], arrays: list, rest: Static, batch: int | None) -> Program:
        args, named = rest.joined(arrays)
        weighted = problem.weighted(batch, None)
        return Program(weighted.model, weighted.guide, args, named, params)

    @partial(quick, static_argnums=(1, 2, 5))
    def drawn(
        arrays: list, rest: Static, batch: int | None, params: Any, key: Any, count: int
    ) -> tuple[jax.Array, ...]:
        inputs = program(params, arrays, rest, batch)
        return objective.by_draws(count).particle_terms(key, inputs)[0]

    @partial(quick, static_argnums=(1, 2))
    def closed(arrays: list, rest: Static, batch: int | None, params: Any, key: Any) -> jax.Array:
        inputs = program(params, arrays, rest, batch)
        call = inputs.model, inputs.guide, *inputs.args
        return objective.loss(key, params, *call, **inputs.kwargs)

    key_of = partial(jax.random.fold_in, jax.random.key(SEED))

    def particles(data: Arguments, count: int, turn: int) -> tuple[np.ndarray, ...]:
        parts = drawn(*apart(data), source.size, params, key_of(turn), count)
        return tuple(np.asarray(part, np.float64) for part in parts)

    def loss(data: Arguments, turn: int) -> float:
        return float(closed(*apart(data), source.size, params, key_of(turn)))

    return Evaluations(particles, loss, last)
