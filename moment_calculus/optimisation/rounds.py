"""Rounds of a method of SciPy, in units that follow the scales of the posterior.

SciPy's methods take no preconditioner. The Fisher matrix of a mean-field Gaussian is diagonal, 1/s²
for locations and 2 for log s, so that locations in units of their scales do as well. Scales change
on the way: when one has moved by more than a factor, a new round begins in new units.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from moment_calculus.optimisation.outcome import Outcome

Report = Callable[[float], None] | None

DRIFT = 4.0  # factor by which a unit may change within a round
FLAT = 1e-5  # nats that a slope may still promise in units of the scales where no step is lower


@dataclass(frozen=True)
class Objective:
    """A deterministic loss of a flat vector of parameters.

    Args:
        value_and_slope: loss and gradient.
        curvature: Hessian.
        curvature_along: Hessian at a place times a direction; called many times at one place.
        units: how far each parameter may move, by the parameters; one with zero stays.
        precision: rounding unit of the loss, relative.
        scales: which parameters are scales of the guide, [n] of bool; None if that is not known.
    """

    value_and_slope: Callable[[np.ndarray], tuple[float, np.ndarray]]
    curvature: Callable[[np.ndarray], np.ndarray]
    curvature_along: Callable[[np.ndarray, np.ndarray], np.ndarray]
    units: Callable[[np.ndarray], np.ndarray]
    precision: float
    scales: np.ndarray | None = None

    def within(self, context: Callable[[], AbstractContextManager]) -> Objective:
        """The same objective, whose functions are computed inside a context.

        Args:
            context: makes it, anew for each call.
        """

        def entering(function: Callable) -> Callable:
            def run(*places: np.ndarray) -> Any:
                with context():
                    return function(*places)

            return run

        names = ("value_and_slope", "curvature", "curvature_along", "units")
        functions: dict[str, Any] = {name: entering(getattr(self, name)) for name in names}
        return replace(self, **functions)


def remembering(objective: Objective) -> Objective:
    """The same objective, which is not computed again where it was last.

    A round begins where the one before ended, a fit where its start was looked at.

    Args:
        objective: a loss.
    """
    return replace(
        objective,
        value_and_slope=_remembered(objective.value_and_slope),
        curvature=_remembered(objective.curvature),
    )


def _remembered(compute: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    last: dict[bytes, Any] = {}

    def remembered(place: np.ndarray) -> Any:
        key = place.tobytes()
        if key not in last:
            last.clear()
            last[key] = compute(place)
        return last[key]

    return remembered


class Round:
    """The objective in the units of one place, and what was found of it last.

    Args:
        objective: the loss.
        origin: the place, where the steps are zero.
    """

    def __init__(self, objective: Objective, origin: np.ndarray) -> None:
        self.objective, self.origin = objective, origin
        self.units = objective.units(origin)
        self._known: dict[bytes, dict[str, Any]] = {}

    def place(self, steps: np.ndarray) -> np.ndarray:
        """Parameters after steps in the units."""
        return self.origin + self.units * steps

    def value_and_slope(self, steps: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss, and gradient by the steps."""
        value, slope = self._once("slope", steps, self.objective.value_and_slope)
        return value, self.units * slope

    def curvature(self, steps: np.ndarray) -> np.ndarray:
        """Hessian by the steps."""
        matrix = self._once("curvature", steps, self.objective.curvature)
        if not np.isfinite(matrix).all():
            raise FloatingPointError("the curvature of the loss is not finite")
        return self.units[:, None] * matrix * self.units

    def curvature_along(self, steps: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Hessian by the steps times a direction."""
        if np.array_equal(direction, -self.value_and_slope(steps)[1]):
            # the decrement begins with it, and so does the next step
            return self._once("steepest", steps, lambda place: self._along(place, direction))
        return self._along(self.place(steps), direction)

    def _along(self, place: np.ndarray, direction: np.ndarray) -> np.ndarray:
        product = self.units * self.objective.curvature_along(place, self.units * direction)
        # with NaN SciPy's conjugate gradients would never end; with zero they go to the boundary
        return product if np.isfinite(product).all() else np.zeros_like(product)

    def drifted(self, steps: np.ndarray) -> bool:
        """Whether the units have changed too much."""
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


def limits(steps: int | None, tolerance: float | None, most: int) -> tuple[int, float]:
    """Steps and tolerance, or their defaults.

    Args:
        steps: that the user asks for.
        tolerance: likewise.
        most: default of the steps.
    """
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


def in_rounds(
    objective: Objective,
    outcome: Outcome,
    steps: int,
    finished: Callable[[Round, np.ndarray], str],
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
        current, before = Round(objective, outcome.place), outcome.steps
        curvatures: dict[str, dict[str, Any]] = {
            "trust-exact": {"hess": current.curvature},
            "trust-ncg": {"hessp": current.curvature_along},
        }
        try:
            minimize(
                current.value_and_slope,
                np.zeros_like(outcome.place),
                jac=True,
                method=method,
                callback=_watching(current, outcome, steps, finished, report),
                options={**options, "maxiter": steps - before},
                **curvatures.get(method, {}),
            )
        except FloatingPointError as error:
            outcome.stop(False, str(error))
            break
        if outcome.steps == before:  # nothing was found below
            slope = current.value_and_slope(np.zeros_like(outcome.place))[1]
            outcome.stop(bool(0.5 * slope @ slope <= FLAT), "no step lowers the loss any more")
            break
    return outcome


def _watching(
    current: Round,
    outcome: Outcome,
    steps: int,
    finished: Callable[[Round, np.ndarray], str],
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
