"""Check a trained loss by draws, once at the end of a fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import torch

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
from pyro_moments.fitting.problem import GlobalRandomState, Problem
from pyro_moments.objectives.particles import Program


def loss_by_draws(
    problem: Problem, source: AllData, options: Options, fit: Fit, take: Callable
) -> ByDraws:
    """Return the trained loss by draws; the global random state stays as it was."""
    if reason := why_not_checked(fit, problem.objective, source):
        return ByDraws(note=reason)
    state = GlobalRandomState()
    before = state.get()
    try:
        pyro.set_rng_seed(SEED)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the training has already given these warnings

            def check(part: AllData) -> ByDraws:
                checked_problem = problem if part is source else _of_rows(problem, part, options)
                evaluations = _evaluations(checked_problem, part, is_last(fit, part, options))
                return check_loss(fit, problem.objective, part, evaluations)

            return check_first_possible(source, take, check)
    finally:
        state.set(before)


def _of_rows(problem: Problem, part: AllData, options: Options) -> Problem:
    """Return the problem that was trained on all data, for mini-batches of them."""
    plates = PlateScaling(options.rows_of(part), options.plate)
    return Problem(problem.objective, problem.model, problem.guide, plates, False, None)


def _evaluations(problem: Problem, source: AllData, last: bool) -> Evaluations:
    objectives: dict[int, Any] = {}

    def particles(data: Arguments, count: int, turn: int) -> tuple[np.ndarray, ...]:
        drawn = objectives.setdefault(count, problem.objective.by_draws(count))
        problem.weighting.batch = source.size
        program = Program(problem.weighted_model, problem.weighted_guide, *data)
        return tuple(part.double().cpu().numpy() for part in drawn.particle_terms(program))

    def loss(data: Arguments, turn: int) -> float:
        problem.weighting.batch = source.size
        return problem.loss(data)

    return Evaluations(particles, loss, last)
