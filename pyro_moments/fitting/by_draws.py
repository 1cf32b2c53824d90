"""The check of a trained loss by draws, run once at the end of a fit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyro
import torch

from moment_calculus.objectives.by_draws import (
    SEED,
    Evaluations,
    checked,
    is_last,
    reason_against,
)
from moment_calculus.optimisation.batches import Arguments, Whole
from moment_calculus.optimisation.options import Options
from moment_calculus.optimisation.outcome import ByDraws, Fit
from pyro_moments.fitting.problem import GlobalRandomState, Problem
from pyro_moments.objectives.particles import Program


def loss_by_draws(problem: Problem, source: Whole, options: Options, fit: Fit) -> ByDraws:
    """The trained loss by draws; the global random state stays as it was.

    Args:
        problem: what was trained.
        source: of the data.
        options: of the fit.
        fit: the result.
    """
    if reason := reason_against(fit, problem.objective, source):
        return ByDraws(note=reason)
    state = GlobalRandomState()
    before = state.get()
    try:
        pyro.set_rng_seed(SEED)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the training has given them
            evaluations = _evaluations(problem, source, is_last(fit, source, options))
            return checked(fit, problem.objective, source, evaluations)
    finally:
        state.set(before)


def _evaluations(problem: Problem, source: Whole, last: bool) -> Evaluations:
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
