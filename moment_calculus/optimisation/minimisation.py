"""Newton's method and L-BFGS, by SciPy, in units that follow the scales of the posterior.

SciPy's methods take no preconditioner. The Fisher matrix of a mean-field Gaussian is diagonal, 1/s²
for locations and 2 for log s, so that locations in units of their scales do as well. Scales change
on the way: when one has moved by more than a factor, a new round begins in new units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from moment_calculus.optimisation.outcome import Outcome

Report = Callable[[float], None] | None

DRIFT = 4.0  # factor by which a unit may change within a round
DENSE = 1000  # parameters up to which Newton's method takes the dense Hessian
MEMORY = 20  # pairs of steps that L-BFGS keeps
LOCATING = 50  # of its steps that move locations alone, at most
FLAT = 1e-5  # nats that a slope may still promise in units of the scales where no step is lower
NULL = 1e-10  # curvature, relative to the largest, that is nothing but rounding
ROUNDING = 8.0  # decrements below so many units of rounding of the loss cannot be seen


@dataclass(frozen=True)
class Objective:
    """A deterministic loss of a flat vector of parameters.

    Args:
        value_and_slope: loss and gradient.
        curvature: Hessian.
        units: how far each parameter may move, by the parameters; one with zero stays.
        precision: rounding unit of the loss, relative.
        scales: which parameters are scales of the guide, [n] of bool; None if that is not known.
    """

    value_and_slope: Callable[[np.ndarray], tuple[float, np.ndarray]]
    curvature: Callable[[np.ndarray], np.ndarray]
    units: Callable[[np.ndarray], np.ndarray]
    precision: float
    scales: np.ndarray | None = None


class _Round:
    """The objective in the units of one place, and what was found of it last."""

    def __init__(self, objective: Objective, origin: np.ndarray) -> None:
        self.objective, self.origin = objective, origin
        self.units = objective.units(origin)
        self._known: dict[bytes, dict[str, Any]] = {}

    def place(self, steps: np.ndarray) -> np.ndarray:
        return self.origin + self.units * steps

    def value_and_slope(self, steps: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = self._once("slope", steps, self.objective.value_and_slope)
        return value, self.units * slope

    def curvature(self, steps: np.ndarray) -> np.ndarray:
        matrix = self._once("curvature", steps, self.objective.curvature)
        return self.units[:, None] * matrix * self.units

    def drifted(self, steps: np.ndarray) -> bool:
        moving = self.units > 0
        ratio = self.objective.units(self.place(steps))[moving] / self.units[moving]
        return bool((np.maximum(ratio, 1 / ratio) > DRIFT).any())

    def _once(self, what: str, steps: np.ndarray, compute: Callable) -> Any:
        """Of the last two places, as a rejected step returns to the one before."""
        key = steps.tobytes()
        if key not in self._known:
            self._known = dict([*self._known.items()][-1:])
        found = self._known.setdefault(key, {})
        if what not in found:
            found[what] = compute(self.place(steps))
        return found[what]


def newton_decrement(slope: np.ndarray, curvature: np.ndarray) -> float:
    """½ gᵀ H⁻¹ g; infinite where H has a negative direction.

    Directions in which H is nothing but rounding, as where parameters are redundant, count with
    the smallest curvature that is more than that.

    Args:
        slope: g, [n].
        curvature: H, [n, n].
    """
    if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
        return np.inf
    try:
        return 0.5 * float(slope @ cho_solve(cho_factor(curvature), slope))
    except LinAlgError:
        values, directions = np.linalg.eigh(curvature)
    smallest = NULL * values[-1]
    if values[-1] <= 0 or values[0] < -smallest:
        return np.inf
    return 0.5 * float(((slope @ directions) ** 2 / np.maximum(values, smallest)).sum())


def newton(
    objective: Objective,
    start: np.ndarray | Outcome,
    steps: int | None = None,
    tolerance: float | None = None,
    report: Report = None,
) -> Outcome:
    """Newton's method in a trust region, with the dense Hessian (SciPy's ``trust-exact``).

    Args:
        objective: the loss.
        start: parameters to begin with, or an outcome to go on from.
        steps: largest number of steps; by default 500.
        tolerance: Newton decrement at which it has converged, in nats; by default 1e-9, and never
            below what the precision of the loss shows.
        report: told of the loss after every step.

    Raises:
        ValueError: if there are more than 1000 parameters.
    """
    steps, tolerance = _limits(steps, tolerance, 500)
    size = start.place.size if isinstance(start, Outcome) else start.size
    if size > DENSE:
        raise ValueError(
            f"method='newton' takes the dense Hessian of up to {DENSE} parameters, here are "
            f"{size}: use method='lbfgs'"
        )
    outcome = started(objective, start)

    def finished(current: _Round, at: np.ndarray) -> str:
        value, slope = current.value_and_slope(at)
        outcome.decrement = newton_decrement(slope, current.curvature(at))
        seen = max(tolerance, ROUNDING * objective.precision * abs(value))
        found = outcome.decrement <= seen
        return f"the Newton decrement is {outcome.decrement:.1e}" if found else ""

    options = {"initial_trust_radius": 1.0, "max_trust_radius": 1e6, "gtol": 0.0}
    return _in_rounds(objective, outcome, steps, finished, "trust-exact", options, report)


def lbfgs(
    objective: Objective,
    start: np.ndarray | Outcome,
    steps: int | None = None,
    tolerance: float | None = None,
    report: Report = None,
) -> Outcome:
    """L-BFGS (SciPy's ``L-BFGS-B``); its first steps move the locations alone.

    Scales move more easily at first: those of a network would go to the prior's, where no data is
    explained, before its weights find any.

    Args:
        objective: the loss.
        start: parameters to begin with, or an outcome to go on from.
        steps: largest number of steps; by default 5000.
        tolerance: relative change of the loss in ten steps at which it has converged; by default
            1e-9, and never below what the precision of the loss shows.
        report: told of the loss after every step.
    """
    steps, tolerance = _limits(steps, tolerance, 5000)
    outcome = started(objective, start)
    if outcome.begun is None:
        if objective.scales is not None and objective.scales.any():
            free = ~objective.scales
            held = replace(objective, units=lambda place: objective.units(place) * free)
            _lbfgs(held, outcome, min(LOCATING, steps), 1e-3, report)
        if outcome.converged or outcome.steps >= LOCATING or outcome.steps < steps:
            outcome.begun = outcome.steps + 1  # what was before is of no account
    if outcome.begun is None:
        return outcome
    return _lbfgs(objective, outcome, steps, tolerance, report)


def _limits(steps: int | None, tolerance: float | None, most: int) -> tuple[int, float]:
    return most if steps is None else steps, 1e-9 if tolerance is None else tolerance


def started(objective: Objective, start: np.ndarray | Outcome) -> Outcome:
    """The outcome of no steps.

    Args:
        objective: the loss.
        start: parameters to begin with, or an outcome, which stays as it is.

    Raises:
        ValueError: if there are no parameters, or the loss is not finite.
    """
    if isinstance(start, Outcome):
        return start
    if not start.size:
        raise ValueError("model and guide have no parameters: there is nothing to train")
    first = objective.value_and_slope(start)[0]
    if not np.isfinite(first):
        raise ValueError(f"the loss at the start is {first}: begin elsewhere, or scale the data")
    return Outcome([first], place=start)


def _lbfgs(
    objective: Objective, outcome: Outcome, steps: int, tolerance: float, report: Report
) -> Outcome:
    begun = 1 if outcome.begun is None else outcome.begun

    def finished(current: _Round, at: np.ndarray) -> str:
        recent = outcome.losses[begun:][-11:]
        change = (max(recent) - recent[-1]) / max(abs(recent[-1]), np.finfo(float).tiny)
        outcome.change = change
        flat = len(recent) == 11 and change <= max(tolerance, ROUNDING * objective.precision)
        return f"in ten steps the loss changed by less than {tolerance:.0e}" if flat else ""

    options = {"maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0, "maxls": 40}
    return _in_rounds(objective, outcome, steps, finished, "L-BFGS-B", options, report)


def _in_rounds(
    objective: Objective,
    outcome: Outcome,
    steps: int,
    finished: Callable[[_Round, np.ndarray], str],
    method: str,
    options: dict[str, Any],
    report: Report,
) -> Outcome:
    """Go on from an outcome by rounds of a method of SciPy, each in the units of its first place.

    Args:
        objective: the loss.
        outcome: so far; what is found is written down there.
        steps: most that the outcome may have.
        finished: why it has converged at a place; empty if it has not.
        method: SciPy's name of it.
        options: SciPy's.
        report: told of the loss after every step.
    """
    outcome.converged, outcome.reason = False, f"stopped after {steps} steps"
    while outcome.steps < steps and not outcome.converged:
        current, before = _Round(objective, outcome.place), outcome.steps
        minimize(
            current.value_and_slope,
            np.zeros_like(outcome.place),
            jac=True,
            hess=current.curvature if method == "trust-exact" else None,
            method=method,
            callback=_watching(current, outcome, steps, finished, report),
            options={**options, "maxiter": steps - before},
        )
        if outcome.steps == before:  # nothing was found below
            slope = current.value_and_slope(np.zeros_like(outcome.place))[1]
            outcome.stop(bool(0.5 * slope @ slope <= FLAT), "no step lowers the loss any more")
            break
    return outcome


def _watching(
    current: _Round,
    outcome: Outcome,
    steps: int,
    finished: Callable[[_Round, np.ndarray], str],
    report: Report,
) -> Callable[..., None]:
    """A callback that writes down where a round is, and ends it."""

    def watch(intermediate_result: Any) -> None:  # SciPy asks for this name
        at = intermediate_result.x
        outcome.place = current.place(at)
        outcome.losses.append(float(intermediate_result.fun))
        outcome.steps += 1
        if report is not None:
            report(outcome.loss)
        if why := finished(current, at):
            outcome.stop(True, why)
        if why or outcome.steps >= steps or current.drifted(at):
            raise StopIteration

    return watch


METHODS = {"newton": newton, "lbfgs": lbfgs}
