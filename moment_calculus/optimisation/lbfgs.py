"""L-BFGS, by SciPy; its first steps move the locations alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from moment_calculus.optimisation.decrement import ROUNDING
from moment_calculus.optimisation.outcome import Outcome
from moment_calculus.optimisation.rounds import (
    FLAT,
    Objective,
    Report,
    Round,
    in_rounds,
    limits,
    started,
)

MEMORY = 20  # steps whose changes of place and slope it keeps
LOCATING = 20  # largest number of steps that move locations alone


def lbfgs(
    objective: Objective,
    start: np.ndarray | Outcome,
    steps: int | None = None,  # 5000 by default
    tolerance: float | None = None,  # relative change in ten steps; 1e-9 by default
    report: Report = None,  # called with the loss after every step
) -> Outcome:
    """Minimise a loss by L-BFGS (SciPy's ``L-BFGS-B``), from parameters or an earlier outcome.

    Scales move more easily than locations at first: those of a network would go to the prior's,
    where no data is explained, before its weights find any.
    """
    steps, tolerance = limits(steps, tolerance, 5000)
    outcome = started(objective, start)
    if outcome.begun is None:
        if objective.scales is not None and objective.scales.any():
            free = ~objective.scales
            held = replace(objective, units=lambda place: objective.units(place) * free)
            _lbfgs(held, outcome, min(LOCATING, steps), 1e-3, report)
        if outcome.converged or outcome.steps >= LOCATING or outcome.steps < steps:
            outcome.begun = outcome.steps + 1  # convergence looks at no earlier losses
    if outcome.begun is None:
        return outcome
    return _lbfgs(objective, outcome, steps, tolerance, report)


def _lbfgs(
    objective: Objective, outcome: Outcome, steps: int, tolerance: float, report: Report
) -> Outcome:
    begun = 1 if outcome.begun is None else outcome.begun

    def finished(current: Round, at: np.ndarray) -> str:
        if _nothing_left(current, at, outcome, tolerance):
            return "the slope promises less than the loss would show"
        recent = outcome.losses[begun:][-11:]
        change = (max(recent) - recent[-1]) / max(abs(recent[-1]), np.finfo(float).tiny)
        outcome.change = change
        flat = len(recent) == 11 and change <= max(tolerance, ROUNDING * objective.precision)
        return f"in ten steps the loss changed by less than {tolerance:.0e}" if flat else ""

    objective = _bounded(objective, outcome)
    options = {"maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0, "maxls": 40}
    return in_rounds(objective, outcome, steps, finished, "L-BFGS-B", options, report)


def _nothing_left(current: Round, at: np.ndarray, outcome: Outcome, tolerance: float) -> bool:
    """Tell whether slope and last gain are so small that rounding hides further progress."""
    slope = current.value_and_slope(at)[1]
    promised, rounding = 0.5 * slope @ slope, ROUNDING * current.objective.precision
    seen = rounding * abs(outcome.loss)
    if outcome.begun is None:  # scales have not moved: the locations are good enough
        return bool(promised <= max(FLAT, seen))
    gained = outcome.losses[-2] - outcome.loss
    # In single precision steps too small to be seen add up: the slope must be much smaller there.
    return bool(gained <= seen and promised <= min(tolerance, rounding) * abs(outcome.loss))


def _bounded(objective: Objective, outcome: Outcome) -> Objective:
    """Return the objective, high and flat where it is not finite: the line search turns back."""

    def value_and_slope(place: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = objective.value_and_slope(place)
        if np.isfinite(value) and np.isfinite(slope).all():
            return value, slope
        return outcome.loss + abs(outcome.loss) + 1.0, np.zeros_like(place)

    return replace(objective, value_and_slope=value_and_slope)
