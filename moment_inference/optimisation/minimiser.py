"""Minimise a deterministic loss by Newton's method or L-BFGS, and judge a point by curvature."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.linalg import LinAlgError

from moment_inference.optimisation.natural_newton import natural_newton
from moment_inference.optimisation.outcome import Course, Outcome
from moment_inference.optimisation.rounds import (
    FLAT,
    MAX_DENSE_PARAMETERS,
    NO_CURVATURE,
    ROUNDING,
    DeterministicLoss,
    Report,
    Round,
    in_rounds,
    initial_outcome,
    with_defaults,
)
from moment_inference.optimisation.training import ProgressBar

NEAR = 1e-3  # nats from an optimum where rounding may end the search
STALLED = 30  # steps in a row without a change of the loss that end it there


def newton(
    objective: DeterministicLoss,
    start: np.ndarray | Outcome,
    steps: int | None = None,  # 500 by default
    tolerance: float | None = None,  # Newton decrement in nats; 1e-9 by default
    report: Report = None,  # called with the loss after every step
) -> Outcome:
    """Minimise a loss by trust-region Newton, from parameters or an earlier outcome.

    Up to 1000 parameters by the dense Hessian (``trust-exact``), then products (``trust-ncg``);
    guides of Gaussian blocks by products in natural parameters.
    """
    steps, tolerance = with_defaults(steps, tolerance, 500)
    outcome = initial_outcome(objective, start)
    outcome.has_small_decrement = False
    blocks, size = objective.blocks(outcome.point), outcome.point.size
    begins_by_slopes = objective.gaussian is None and size <= MAX_DENSE_PARAMETERS
    if begins_by_slopes and not _moved_by_slopes_first(objective, outcome, steps, report):
        return outcome
    if blocks is not None:
        return natural_newton(objective, blocks, outcome, steps, tolerance, report)
    objective = _without_nan(objective)
    decrement = _dense_decrement if size <= MAX_DENSE_PARAMETERS else _products_decrement

    def convergence_reason(current: Round, position: np.ndarray) -> str:
        threshold = max(tolerance, ROUNDING * objective.precision * abs(outcome.loss))
        outcome.decrement = decrement(current, position, threshold)
        outcome.has_small_decrement = outcome.decrement <= threshold
        gain = f"the Newton decrement is {outcome.decrement:.1e}"
        if outcome.has_small_decrement:
            return gain
        # Each step that rounding hides shrinks the region to a quarter.
        recent = outcome.losses[-STALLED:]
        stalled = outcome.decrement <= NEAR and recent == [outcome.loss] * STALLED
        return f"rounding hides what another step would gain: {gain}" if stalled else ""

    if size <= MAX_DENSE_PARAMETERS:
        return _by_dense_hessians(objective, outcome, steps, convergence_reason, report)
    # trust-krylov was no better: equal time (2.6 s and 17 s against 2.5 s and 20 s for logistic
    # regressions with 1000 and 3000 covariates), worse optima of a 13-50-1 network for two of three
    # seeds, memory for n². The initial radius √n (a unit a parameter) saves a quarter of the steps.
    radius = float(np.sqrt(size))
    options = _trust_region_options(radius, np.finfo(float).tiny)
    in_rounds(objective, outcome, steps, convergence_reason, "trust-ncg", options, report)
    return _final_decrement(objective, outcome)


def _by_dense_hessians(
    objective: DeterministicLoss,
    outcome: Outcome,
    steps: int,
    convergence_reason: Callable[[Round, np.ndarray], str],
    report: Report,
) -> Outcome:
    """Go on by Hessians until a step would gain nothing more."""
    with contextlib.suppress(FloatingPointError):  # the slopes may have found the optimum
        current = Round(objective, outcome.point)
        reason = convergence_reason(current, np.zeros_like(outcome.point))
        if reason and outcome.decrement is not None and outcome.decrement <= FOUND:
            outcome.stop(True, reason)
            return outcome
    options = _trust_region_options(1.0, 0.0)
    arguments = objective, outcome, steps, convergence_reason, "trust-exact", options, report
    in_rounds(*arguments)
    while outcome.reason.endswith(NO_CURVATURE) and _moved_by_slopes(
        objective, outcome, steps, report
    ):
        in_rounds(*arguments)
    return outcome


# Steps by slopes before the first Hessian, 20 of locations alone: from the start Newton's method
# goes to worse optima of a BYM model (351.4, where L-BFGS and these steps end at 332.8), and a
# step takes a fraction of the time.
SLOPES_FIRST = 50
FOUND = 1e-14  # decrement after them that no Hessian would make smaller


def _moved_by_slopes_first(
    objective: DeterministicLoss, outcome: Outcome, steps: int, report: Report
) -> bool:
    """Go the first steps by slopes; return whether all parameters have moved."""
    if outcome.first_full_step is None and not _move_locations_first(
        objective, outcome, steps, report
    ):
        return False
    if outcome.steps < SLOPES_FIRST:
        _lbfgs(objective, outcome, min(SLOPES_FIRST, steps), 1e-3, report)
    return True


DETOUR = 20  # steps of L-BFGS away from where the curvature is not finite


def _moved_by_slopes(
    objective: DeterministicLoss, outcome: Outcome, steps: int, report: Report
) -> bool:
    """Go on by slopes where the curvature overflows, as in single precision; tell if that moved."""
    before = outcome.steps
    _lbfgs(objective, outcome, min(steps, before + DETOUR), 0.0, report)
    if outcome.steps == before or outcome.steps >= steps:
        outcome.stop(False, NO_CURVATURE)
        return False
    return True


def _without_nan(objective: DeterministicLoss) -> DeterministicLoss:
    """Return the objective with NaN replaced by infinity, so the trust region shrinks."""

    def value_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective.value_and_slope(point)
        return np.inf if np.isnan(value) else value, gradient

    return replace(objective, value_and_slope=value_and_slope)


def _trust_region_options(radius: float, gradient_tolerance: float) -> dict[str, float]:
    return {"initial_trust_radius": radius, "max_trust_radius": 1e6, "gtol": gradient_tolerance}


def _dense_decrement(current: Round, position: np.ndarray, enough: float) -> float:
    return newton_decrement(current.value_and_slope(position)[1], current.hessian(position))


def _products_decrement(current: Round, position: np.ndarray, enough: float) -> float:
    return decrement_by_products(
        current.value_and_slope(position)[1],
        lambda direction: current.hessian_product(position, direction),
        enough,
        current.objective.precision,
    )


def _final_decrement(objective: DeterministicLoss, outcome: Outcome) -> Outcome:
    """Complete the decrement where the method stopped."""
    if not outcome.has_small_decrement:
        origin = np.zeros_like(outcome.point)
        outcome.decrement = _products_decrement(Round(objective, outcome.point), origin, np.inf)
    if outcome.converged and outcome.decrement == np.inf:
        outcome.stop(False, "no step lowers the loss any more, and its curvature is not positive")
    return outcome


LBFGS_HISTORY = 20  # steps whose changes of point and gradient L-BFGS keeps
LOCATION_STEPS = 20  # largest number of steps that move locations alone


def lbfgs(
    objective: DeterministicLoss,
    start: np.ndarray | Outcome,
    steps: int | None = None,  # 5000 by default
    tolerance: float | None = None,  # relative change in ten steps; 1e-9 by default
    report: Report = None,  # called with the loss after every step
) -> Outcome:
    """Minimise a loss by L-BFGS (SciPy's ``L-BFGS-B``), from parameters or an earlier outcome."""
    steps, tolerance = with_defaults(steps, tolerance, 5000)
    outcome = initial_outcome(objective, start)
    if outcome.first_full_step is None and not _move_locations_first(
        objective, outcome, steps, report
    ):
        return outcome
    return _lbfgs(objective, outcome, steps, tolerance, report)


def _move_locations_first(
    objective: DeterministicLoss, outcome: Outcome, steps: int, report: Report
) -> bool:
    """Move locations alone; return whether all parameters may move now."""
    # At first scales move more easily than locations: a network's scales would go to the
    # prior's before its weights explain any data. So the first steps move locations only.
    if objective.scales is not None and objective.scales.any():
        is_location = ~objective.scales
        step_scales = lambda point: objective.units(point) * is_location  # noqa: E731
        locations_only = replace(objective, units=step_scales)
        _lbfgs(locations_only, outcome, min(LOCATION_STEPS, steps), 1e-3, report)
    if outcome.converged or outcome.steps >= LOCATION_STEPS or outcome.steps < steps:
        outcome.first_full_step = outcome.steps + 1  # convergence looks at no earlier losses
    return outcome.first_full_step is not None


def _lbfgs(
    objective: DeterministicLoss, outcome: Outcome, steps: int, tolerance: float, report: Report
) -> Outcome:
    first_full_step = 1 if outcome.first_full_step is None else outcome.first_full_step

    def convergence_reason(current: Round, position: np.ndarray) -> str:
        if _gradient_is_negligible(current, position, outcome, tolerance):
            return "the slope promises less than the loss would show"
        recent = outcome.losses[first_full_step:][-11:]
        change = (max(recent) - recent[-1]) / max(abs(recent[-1]), np.finfo(float).tiny)
        outcome.change = change
        flat = len(recent) == 11 and change <= max(tolerance, ROUNDING * objective.precision)
        return f"in ten steps the loss changed by less than {tolerance:.0e}" if flat else ""

    objective = _with_finite_values(objective, outcome)
    options = {"maxcor": LBFGS_HISTORY, "ftol": 0.0, "gtol": 0.0, "maxls": 40}
    return in_rounds(objective, outcome, steps, convergence_reason, "L-BFGS-B", options, report)


def _gradient_is_negligible(
    current: Round, position: np.ndarray, outcome: Outcome, tolerance: float
) -> bool:
    """Return whether rounding hides the gain that gradient and last step promise."""
    gradient = current.value_and_slope(position)[1]
    promised, rounding = 0.5 * gradient @ gradient, ROUNDING * current.objective.precision
    threshold = rounding * abs(outcome.loss)
    if outcome.first_full_step is None:  # scales have not moved: the locations are good enough
        return bool(promised <= max(FLAT, threshold))
    gained = outcome.losses[-2] - outcome.loss
    # Invisible single-precision steps add up, so the gradient must be much smaller.
    return bool(gained <= threshold and promised <= min(tolerance, rounding) * abs(outcome.loss))


def _with_finite_values(objective: DeterministicLoss, outcome: Outcome) -> DeterministicLoss:
    """Return the objective, high and flat where it is not finite."""

    def value_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective.value_and_slope(point)
        if np.isfinite(value) and np.isfinite(gradient).all():
            return value, gradient
        return outcome.loss + abs(outcome.loss) + 1.0, np.zeros_like(point)

    return replace(objective, value_and_slope=value_and_slope)


METHODS = {"newton": newton, "lbfgs": lbfgs}


ADAM_REMEDY = "train by method='adam', or use an objective without them"


def check_deterministic(first: float, second: float, remedy: str = ADAM_REMEDY) -> None:
    """Raise ValueError if two values of a loss differ by their random numbers."""
    if first != second and not (math.isnan(first) and math.isnan(second)):
        raise ValueError(
            f"the loss is not deterministic: {first} and {second} with different random numbers. "
            "Sites in sample_sites, subsampling plates and draws of the model itself make it "
            f"noise: {remedy}"
        )


def check_no_subsample(
    drawn: Mapping[str, tuple[int, int]], remedy: str = "train by method='adam'"
) -> None:
    """Raise ValueError if plates draw a subsample: sizes of it and of the plate, by name."""
    # Whatever two values are: by chance they may be equal, or in every subsample.
    for name, (part, size) in drawn.items():
        raise ValueError(
            f"the loss is not deterministic: plate '{name}' draws {part} of its {size} elements "
            f"anew in every evaluation. Leave out its subsample_size, or {remedy}"
        )


@dataclass
class Minimiser:
    """Trainer for a deterministic method; each stretch starts a new SciPy call."""

    objective: DeterministicLoss
    outcome: Outcome  # where the training is
    method: str  # a key of METHODS
    tolerance: float | None
    values_at: Callable[[np.ndarray], dict[str, Any]]  # parameters by name, of a flat vector
    terms_at: Callable[[np.ndarray], dict[str, float]]  # by site, of the ELBO
    score_at: Callable[[np.ndarray], float]  # held-out log-likelihood

    def advance(self, course: Course, steps: int, bar: ProgressBar) -> None:
        """Continue to a number of steps."""
        minimise = METHODS[self.method]
        report = lambda loss: bar.report(1, loss)  # noqa: E731
        minimise(self.objective, self.outcome, steps, self.tolerance, report)
        if course.steps >= steps and not course.converged:
            course.reason = ""

    def leave_saddle(self) -> bool:
        """Step off a saddle if L-BFGS stopped at one; tell whether it did."""
        if self.method == "newton":  # which has looked at the curvature itself
            return False
        outcome = self.outcome
        lower_point = step_off_saddle(self.objective, outcome.point, outcome.loss)
        if lower_point is None:
            return False
        outcome.point, loss = lower_point
        outcome.losses.append(loss)
        outcome.steps += 1
        return True

    def values(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return self.values_at(self.outcome.point)

    def terms(self) -> dict[str, float]:
        """Return what each site contributes to the ELBO."""
        return self.terms_at(self.outcome.point)

    def held_out_log_likelihood(self) -> float:
        """Return the held-out log-likelihood."""
        return self.score_at(self.outcome.point)

    def snapshot(self) -> np.ndarray:
        """Return a copy of the parameters."""
        return self.outcome.point.copy()

    def load_snapshot(self, snapshot: np.ndarray) -> None:
        """Restore parameters that :meth:`snapshot` returned."""
        self.outcome.point = snapshot

    def state(self) -> Any:
        """Return all that the next steps depend on."""
        return {"place": self.outcome.point, "begun": self.outcome.first_full_step}

    def load_state(self, state: Any) -> None:
        """Continue from a state."""
        self.outcome.point = np.asarray(state["place"])
        self.outcome.first_full_step = state["begun"]

    def finish(self, course: Course) -> None:
        """Do nothing: all losses are known."""


NULL = 1e-10  # curvatures below this share of the largest are rounding
ACCURACY = 0.05  # relative, of a decrement from products; measured: a third of it
PATIENCE = 5  # smallest number of conjugate directions that must gain almost nothing


def newton_decrement(slope: np.ndarray, hessian: np.ndarray) -> float:
    """Return ½ gᵀ H⁻¹ g of g [n], H [n, n]; infinite for a negative direction."""
    if not (np.isfinite(slope).all() and np.isfinite(hessian).all()):
        return np.inf
    try:
        return 0.5 * float(slope @ scipy.linalg.cho_solve(scipy.linalg.cho_factor(hessian), slope))
    except LinAlgError:
        values, directions = np.linalg.eigh(hessian)
    # Directions that are nothing but rounding (redundant parameters) count with the
    # smallest curvature that is more.
    smallest = NULL * values[-1]
    if values[-1] <= 0 or values[0] < -smallest:
        return np.inf
    return 0.5 * float(((slope @ directions) ** 2 / np.maximum(values, smallest)).sum())


def decrement_by_products(
    slope: np.ndarray,
    product: Callable[[np.ndarray], np.ndarray],
    enough: float = np.inf,
    precision: float = 0.0,
) -> float:
    """Return ½ gᵀ H⁻¹ g by conjugate gradients; infinite if they meet a negative direction.

    Source: Hestenes and Stiefel 1952, theorem 6:3; the estimate of what is left is that
    of Strakoš and Tichý 2002, the gains of the last directions.
    """
    gained = _partial_decrement(slope, product, enough, precision)
    if gained > enough or gained == np.inf:
        return gained
    # At a saddle the slope may be zero in the negative direction: look in any direction,
    # too.
    anywhere = np.random.default_rng(0).normal(size=slope.size)
    return gained if _partial_decrement(anywhere, product, np.inf, precision) < np.inf else np.inf


def _partial_decrement(
    slope: np.ndarray,
    product: Callable[[np.ndarray], np.ndarray],
    enough: float,
    precision: float,
) -> float:
    """Return the decrement, or a part of it that is more than ``enough``."""
    null = max(NULL, ROUNDING * precision)
    residual, largest = -slope, 0.0
    direction = residual
    gains: list[float] = []
    # The gains of the directions add up to the decrement from below: far from an optimum
    # the first one is more than enough.
    while not _is_settled(gains, enough) and (squared := float(residual @ residual)) != 0:
        image, length = product(direction), float(direction @ direction)
        curvature = float(direction @ image)
        largest = max(largest, curvature / length)
        threshold = null * largest * length
        if not curvature > -threshold or len(gains) > 2 * slope.size:  # also if it is NaN
            return np.inf
        rate = squared / max(curvature, threshold)
        gains.append(0.5 * rate * squared)
        if curvature <= threshold:  # the rest of the slope is along redundant parameters
            break
        residual = residual - rate * image
        direction = residual + float(residual @ residual) / squared * direction
    return float(sum(gains))


def _is_settled(gains: list[float], enough: float) -> bool:
    """Tell whether gains are ``enough``, or the last third of them is little."""
    total, last = sum(gains), max(PATIENCE, len(gains) // 3)
    return total > enough or (len(gains) > last and sum(gains[-last:]) <= ACCURACY * total)


PRODUCTS = 24  # largest number of products of the Hessian with directions, each a slope
NEGATIVE = 1e-3  # negative curvatures below this share of the largest count as rounding
SETTLED = 1e-2  # relative change of the least curvature that counts as none
LENGTHS = (1.0, 0.25, 4.0)  # of the step off a saddle, in units of the scales


def step_off_saddle(
    objective: DeterministicLoss, point: np.ndarray, loss: float
) -> tuple[np.ndarray, float] | None:
    """Return a lower point beside a saddle, with its loss; None if ``point`` is no saddle.

    It takes at most 24 slopes for the least curvature, and six losses if that is
    negative. A point is a saddle only if the mean loss on both sides is lower by more
    than rounding, which excludes flat directions.
    """
    current = Round(objective, point)
    origin = np.zeros_like(point)
    slope = current.value_and_slope(origin)[1]
    if not np.isfinite(slope).all():
        return None
    # The third root balances the errors of rounding and of the third derivative.
    small = max(objective.precision, np.finfo(float).eps) ** (1 / 3)

    def product(direction: np.ndarray) -> np.ndarray:
        return (current.value_and_slope(small * direction)[1] - slope) / small

    direction = negative_direction(product, point.size)
    if direction is None:
        return None
    seen = max(1e-9, ROUNDING * objective.precision) * abs(loss)
    for length in LENGTHS:
        steps = [length * direction, -length * direction]
        losses = [current.value_and_slope(step)[0] for step in steps]
        if loss - sum(losses) / 2 > seen:  # on both sides: a slope lowers only one
            lower = int(np.argmin(losses))
            return current.point_at(steps[lower]), losses[lower]
    return None


def negative_direction(product: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray | None:
    """Return a unit direction along which a symmetric matrix is clearly negative; None if none.

    Source: Lanczos 1950, with full orthogonalisation. The least eigenvalue that products
    show is above the true one: no negative one is invented, but a small one may stay
    hidden.
    """
    basis = [_unit(np.random.default_rng(0).normal(size=size))]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    least: list[float] = []
    while len(basis) <= min(PRODUCTS, size):
        image = product(basis[-1])
        if not np.isfinite(image).all():
            return None
        diagonal.append(float(basis[-1] @ image))
        values, vectors = scipy.linalg.eigh_tridiagonal(np.array(diagonal), np.array(off_diagonal))
        least.append(float(values[0]))
        is_settled = len(least) > 3 and abs(least[-4] - least[-1]) <= SETTLED * abs(least[-1])
        rest = image - np.stack(basis).T @ (np.stack(basis) @ image)
        length = float(np.linalg.norm(rest))
        if is_settled or length <= NEGATIVE * abs(values).max():
            break
        off_diagonal.append(length)
        basis.append(_unit(rest - np.stack(basis).T @ (np.stack(basis) @ rest)))
    if least[-1] >= -NEGATIVE * abs(values).max():
        return None
    return _unit(vectors[:, 0] @ np.stack(basis[: len(diagonal)]))


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)
