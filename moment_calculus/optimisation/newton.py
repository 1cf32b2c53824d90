"""Newton's method in a trust region, by SciPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from moment_calculus.optimisation.decrement import (
    ROUNDING,
    decrement_by_products,
    newton_decrement,
)
from moment_calculus.optimisation.outcome import Outcome
from moment_calculus.optimisation.rounds import (
    DeterministicLoss,
    Report,
    Round,
    in_rounds,
    initial_outcome,
    with_defaults,
)

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
    """Return the objective, infinite where it is NaN: only then a trust region shrinks."""

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
    """Complete the decrement where the method stopped, which may be known in part only."""
    if not outcome.reason.startswith("converged: the Newton decrement"):
        at = np.zeros_like(outcome.place)
        outcome.decrement = _products_decrement(Round(objective, outcome.place), at, np.inf)
    if outcome.converged and outcome.decrement == np.inf:
        outcome.stop(False, "no step lowers the loss any more, and its curvature is not positive")
    return outcome
