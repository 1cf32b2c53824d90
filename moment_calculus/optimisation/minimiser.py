"""Minimise a deterministic loss by Newton's method or L-BFGS, both by SciPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from moment_calculus.optimisation.curvature import (
    ROUNDING,
    decrement_by_products,
    newton_decrement,
    step_off_saddle,
)
from moment_calculus.optimisation.outcome import Course, Outcome
from moment_calculus.optimisation.rounds import (
    FLAT,
    DeterministicLoss,
    Report,
    Round,
    in_rounds,
    initial_outcome,
    with_defaults,
)
from moment_calculus.optimisation.training import ProgressBar

DENSE = 1000  # largest number of parameters for the dense Hessian


def newton(
    objective: DeterministicLoss,
    start: np.ndarray | Outcome,
    steps: int | None = None,  # 500 by default
    tolerance: float | None = None,  # Newton decrement in nats; 1e-9 by default
    report: Report = None,  # called with the loss after every step
) -> Outcome:
    """Minimise a loss by Newton's method in a trust region, from parameters or an outcome.

    Up to 1000 parameters it takes the dense Hessian (SciPy's ``trust-exact``), beyond
    that its products with directions (``trust-ncg``).
    """
    steps, tolerance = with_defaults(steps, tolerance, 500)
    outcome = initial_outcome(objective, start)
    objective, size = _without_nan(objective), outcome.place.size
    decrement = _dense_decrement if size <= DENSE else _products_decrement

    def finished(current: Round, at: np.ndarray) -> str:
        seen = max(tolerance, ROUNDING * objective.precision * abs(outcome.loss))
        outcome.decrement = decrement(current, at, seen)
        found = outcome.decrement <= seen
        return f"the Newton decrement is {outcome.decrement:.1e}" if found else ""

    if size <= DENSE:
        options = _trust_region_options(1.0, 0.0)
        return in_rounds(objective, outcome, steps, finished, "trust-exact", options, report)
    # Why not trust-krylov: it takes as long (trust-ncg 2.6 and 17 seconds, trust-krylov
    # 2.5 and 20, for logistic regressions of 1000 and 3000 covariates), finds higher
    # optima of a network 13-50-1 for two seeds of three, and stores its directions, twice
    # the squared number of parameters. The radius, a scale for each parameter, saves a
    # quarter of the steps.
    radius = float(np.sqrt(size))
    options = _trust_region_options(radius, np.finfo(float).tiny)
    in_rounds(objective, outcome, steps, finished, "trust-ncg", options, report)
    return _final_decrement(objective, outcome)


def _without_nan(objective: DeterministicLoss) -> DeterministicLoss:
    """Return the objective, infinite where it is NaN, so that a region shrinks."""

    def value_and_slope(place: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = objective.value_and_slope(place)
        return np.inf if np.isnan(value) else value, slope

    return replace(objective, value_and_slope=value_and_slope)


def _trust_region_options(radius: float, least_slope: float) -> dict[str, float]:
    return {"initial_trust_radius": radius, "max_trust_radius": 1e6, "gtol": least_slope}


def _dense_decrement(current: Round, at: np.ndarray, enough: float) -> float:
    return newton_decrement(current.value_and_slope(at)[1], current.hessian(at))


def _products_decrement(current: Round, at: np.ndarray, enough: float) -> float:
    return decrement_by_products(
        current.value_and_slope(at)[1],
        lambda direction: current.hessian_product(at, direction),
        enough,
        current.objective.precision,
    )


def _final_decrement(objective: DeterministicLoss, outcome: Outcome) -> Outcome:
    """Complete the decrement where the method stopped."""
    if not outcome.reason.startswith("converged: the Newton decrement"):
        at = np.zeros_like(outcome.place)
        outcome.decrement = _products_decrement(Round(objective, outcome.place), at, np.inf)
    if outcome.converged and outcome.decrement == np.inf:
        outcome.stop(False, "no step lowers the loss any more, and its curvature is not positive")
    return outcome


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
    """Tell whether rounding hides what slope and last gain promise."""
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
    """Return the objective, high and flat where it is not finite."""

    def value_and_slope(place: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = objective.value_and_slope(place)
        if np.isfinite(value) and np.isfinite(slope).all():
            return value, slope
        return outcome.loss + abs(outcome.loss) + 1.0, np.zeros_like(place)

    return replace(objective, value_and_slope=value_and_slope)


METHODS = {"newton": newton, "lbfgs": lbfgs}


BY_ADAM = "train by method='adam', or use an objective without them"


def check_deterministic(one: float, other: float, remedy: str = BY_ADAM) -> None:
    """Raise ValueError if two values of a loss differ by their random numbers."""
    if one != other:
        raise ValueError(
            f"the loss is not deterministic: {one} and {other} with different random numbers. "
            "Sites in sample_sites, subsampling plates and draws of the model itself make it "
            f"noise: {remedy}"
        )


@dataclass
class Minimiser:
    """A :class:`.Trainer` by a deterministic method; a stretch begins a round."""

    objective: DeterministicLoss
    outcome: Outcome  # where the training is
    method: str  # a key of METHODS
    tolerance: float | None
    values_at: Callable[[np.ndarray], dict[str, Any]]  # parameters by name, of a flat vector
    terms_at: Callable[[np.ndarray], dict[str, float]]  # by site, of the ELBO
    score_at: Callable[[np.ndarray], float]  # held-out log-likelihood

    def advance(self, course: Course, steps: int, bar: ProgressBar) -> None:
        """Go on to a number of steps."""
        step = METHODS[self.method]
        report = lambda loss: bar.report(1, loss)  # noqa: E731
        step(self.objective, self.outcome, steps, self.tolerance, report)
        if course.steps >= steps and not course.converged:
            course.reason = ""

    def leave_saddle(self) -> bool:
        """Step off a saddle if L-BFGS stopped at one; tell whether it did."""
        at = self.outcome
        # Newton's method has looked at the curvature itself.
        lower = (
            None if self.method == "newton" else step_off_saddle(self.objective, at.place, at.loss)
        )
        if lower is None:
            return False
        at.place, loss = lower
        at.losses.append(loss)
        at.steps += 1
        return True

    def values(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return self.values_at(self.outcome.place)

    def terms(self) -> dict[str, float]:
        """Return what each site contributes to the ELBO."""
        return self.terms_at(self.outcome.place)

    def held_out_log_likelihood(self) -> float:
        """Return the held-out log-likelihood."""
        return self.score_at(self.outcome.place)

    def snapshot(self) -> np.ndarray:
        """Return a copy of the parameters."""
        return self.outcome.place.copy()

    def load_snapshot(self, snapshot: np.ndarray) -> None:
        """Return to the parameters of a snapshot."""
        self.outcome.place = snapshot

    def state(self) -> Any:
        """Return all that the next steps depend on."""
        return {"place": self.outcome.place, "begun": self.outcome.full_start}

    def load_state(self, state: Any) -> None:
        """Go on from a state."""
        self.outcome.place, self.outcome.full_start = np.asarray(state["place"]), state["begun"]

    def finish(self, course: Course) -> None:
        """Do nothing: all losses are known."""
