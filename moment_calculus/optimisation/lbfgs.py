"""L-BFGS, by SciPy; its first steps move the locations alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from moment_calculus.optimisation.decrement import ROUNDING
from moment_calculus.optimisation.outcome import Outcome
from moment_calculus.optimisation.rounds import (
    FLAT,
    DeterministicLoss,
    Report,
    Round,
    in_rounds,
    initial_outcome,
    with_defaults,
)

MEMORY = 20  # steps whose changes of place and slope it keeps
LOCATION_STEPS = 20  # largest number of steps that move locations alone


def lbfgs(
    objective: DeterministicLoss,
    start: np.ndarray | Outcome,
    steps: int | None = None,  # 5000 by default
    tolerance: float | None = None,  # relative change in ten steps; 1e-9 by default
    report: Report = None,  # called with the loss after every step
) -> Outcome:
    """Minimise a loss by L-BFGS (SciPy's ``L-BFGS-B``), from parameters or an earlier outcome.

    Scales move more easily than locations at first: those of a network would go to the
    prior's, where no data is explained, before its weights find any.
    """
    steps, tolerance = with_defaults(steps, tolerance, 5000)
    outcome = initial_outcome(objective, start)
    if outcome.full_start is None:
        if objective.scales is not None and objective.scales.any():
            free = ~objective.scales
            held = replace(objective, units=lambda place: objective.units(place) * free)
            _lbfgs(held, outcome, min(LOCATION_STEPS, steps), 1e-3, report)
        if outcome.converged or outcome.steps >= LOCATION_STEPS or outcome.steps < steps:
            outcome.full_start = outcome.steps + 1  # convergence looks at no earlier losses
    if outcome.full_start is None:
        return outcome
    return _lbfgs(objective, outcome, steps, tolerance, report)


def _lbfgs(
    objective: DeterministicLoss, outcome: Outcome, steps: int, tolerance: float, report: Report
) -> Outcome:
    full_start = 1 if outcome.full_start is None else outcome.full_start

    def finished(current: Round, at: np.ndarray) -> str:
        if _slope_is_negligible(current, at, outcome, tolerance):
            return "the slope promises less than the loss would show"
        recent = outcome.losses[full_start:][-11:]
        change = (max(recent) - recent[-1]) / max(abs(recent[-1]), np.finfo(float).tiny)
        outcome.change = change
        flat = len(recent) == 11 and change <= max(tolerance, ROUNDING * objective.precision)
        return f"in ten steps the loss changed by less than {tolerance:.0e}" if flat else ""

    objective = _finite(objective, outcome)
    options = {"maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0, "maxls": 40}
    return in_rounds(objective, outcome, steps, finished, "L-BFGS-B", options, report)


def _slope_is_negligible(
    current: Round, at: np.ndarray, outcome: Outcome, tolerance: float
) -> bool:
    """Tell whether slope and last gain are so small that rounding hides further progress."""
    slope = current.value_and_slope(at)[1]
    promised, rounding = 0.5 * slope @ slope, ROUNDING * current.objective.precision
    seen = rounding * abs(outcome.loss)
    if outcome.full_start is None:  # scales have not moved: the locations are good enough
        return bool(promised <= max(FLAT, seen))
    gained = outcome.losses[-2] - outcome.loss
    # In single precision steps too small to be seen add up: the slope must be much
    # smaller there.
    return bool(gained <= seen and promised <= min(tolerance, rounding) * abs(outcome.loss))


def _finite(objective: DeterministicLoss, outcome: Outcome) -> DeterministicLoss:
    """Return the objective, high and flat where it is not finite: the line search turns back."""

    def value_and_slope(place: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = objective.value_and_slope(place)
        if np.isfinite(value) and np.isfinite(slope).all():
            return value, slope
        return outcome.loss + abs(outcome.loss) + 1.0, np.zeros_like(place)

    return replace(objective, value_and_slope=value_and_slope)
