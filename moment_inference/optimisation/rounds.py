"""Rounds of a SciPy method, in units that follow the scales of the posterior.

SciPy's methods take no preconditioner. The Fisher matrix of a mean-field Gaussian is
diagonal, 1/s² for locations and 2 for log s, so that locations in units of their scales
serve as one. Scales change: when one has moved by more than a factor, a new round begins
in new units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from moment_guides.families.gaussian_parameters import GaussianParameters
from moment_inference.optimisation.outcome import Outcome

Report = Callable[[float], None] | None

MAX_DENSE_PARAMETERS = 1000  # largest number of parameters for the dense Hessian
# Up to so many parameters the dense Hessian also if coordinates are independent. A walk of 100
# counts has 204: 2.1 s and 1.2 s by products (Pyro); of 300: 48 s and 4.5 s.
FEW = 200
DRIFT = 4.0  # factor by which a unit may change within a round
NO_CURVATURE = "the curvature of the loss is not finite"
ROUNDING = 8.0  # differences of fewer rounding units cannot be seen
FLAT = 1e-5  # nats that a slope may promise if no step lowers the loss


@dataclass(frozen=True)
class DeterministicLoss:
    """A deterministic loss of a flat vector of parameters."""

    value_and_slope: Callable[[np.ndarray], tuple[float, np.ndarray]]  # loss and gradient
    hessian: Callable[[np.ndarray], np.ndarray]  # Hessian
    # Hessian at a point times a direction; called many times at one point.
    hessian_product: Callable[[np.ndarray, np.ndarray], np.ndarray]
    # How far each parameter may move; one with zero stays.
    units: Callable[[np.ndarray], np.ndarray]
    precision: float  # rounding unit of the loss, relative
    scales: np.ndarray | None = None  # [n] of bool: scales of the guide; None if unknown
    gaussian: GaussianParameters | None = None  # of a guide with covariances
    is_compiled: bool = False  # whether a slope is far cheaper to compile than a product
    singles: GaussianParameters | None = None  # locations and scales of independent coordinates

    def with_singles(
        self, sizes: Mapping[str, int], locations: Mapping[str, str]
    ) -> DeterministicLoss:
        """Return the same objective, from the location of each scale and all sizes by name."""
        singles = GaussianParameters.of_single_coordinates(sizes, locations)
        return replace(self, singles=singles)

    def blocks(self, point: np.ndarray) -> GaussianParameters | None:
        """Return the Gaussian by whose products Newton's method goes; None if by others."""
        if self.gaussian is not None or not FEW < point.size <= MAX_DENSE_PARAMETERS:
            return self.gaussian
        if self.singles is None or not self.singles.parts[1].locs.size:
            return None
        _, singles = self.singles.parts
        scales = self.units(point)[singles.locs]
        is_softplus = np.allclose(scales, np.logaddexp(0, point[singles.scales]), 1e-4)
        return self.singles if is_softplus else None

    def within(self, context: Callable[[], AbstractContextManager]) -> DeterministicLoss:
        """Return the same objective, computed inside ``context()``."""

        def entering(function: Callable) -> Callable:
            def run(*points: np.ndarray) -> Any:
                with context():
                    return function(*points)

            return run

        names = ("value_and_slope", "hessian", "hessian_product", "units")
        functions: dict[str, Any] = {name: entering(getattr(self, name)) for name in names}
        return replace(self, **functions)


def cached(objective: DeterministicLoss) -> DeterministicLoss:
    """Return the same objective, which is not computed again at the last point."""
    # A round begins where the one before ended, and a fit where its start was checked.
    return replace(
        objective,
        value_and_slope=_cached(objective.value_and_slope),
        hessian=_cached(objective.hessian),
    )


def _cached(compute: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    last: dict[bytes, Any] = {}

    def remembered(point: np.ndarray) -> Any:
        key = point.tobytes()
        if key not in last:
            last.clear()
            last[key] = compute(point)
        return last[key]

    return remembered


class Round:
    """The objective in the units of one point, its origin, with its last results."""

    def __init__(self, objective: DeterministicLoss, origin: np.ndarray) -> None:
        self.objective, self.origin = objective, origin
        self.units = objective.units(origin)
        self._cache: dict[bytes, dict[str, Any]] = {}

    def point_at(self, position: np.ndarray) -> np.ndarray:
        """Return the parameters after steps in the units."""
        return self.origin + self.units * position

    def value_and_slope(self, position: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss, and its gradient by the steps."""
        value, slope = self._cached_value("slope", position, self.objective.value_and_slope)
        return value, self.units * slope

    def hessian(self, position: np.ndarray) -> np.ndarray:
        """Return the Hessian by the steps."""
        matrix = self._cached_value("hessian", position, self.objective.hessian)
        if not np.isfinite(matrix).all():
            raise FloatingPointError(NO_CURVATURE)
        return self.units[:, None] * matrix * self.units

    def hessian_product(self, position: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Return the Hessian by the steps times a direction."""
        if np.array_equal(direction, -self.value_and_slope(position)[1]):
            # The decrement begins with this direction, and so does the next step.
            return self._cached_value(
                "steepest", position, lambda point: self._along(point, direction)
            )
        return self._along(self.point_at(position), direction)

    def _along(self, point: np.ndarray, direction: np.ndarray) -> np.ndarray:
        product = self.units * self.objective.hessian_product(point, self.units * direction)
        # With NaN SciPy's conjugate gradients would never end; with zero they go to the
        # boundary.
        return product if np.isfinite(product).all() else np.zeros_like(product)

    def units_changed(self, position: np.ndarray) -> bool:
        """Tell whether the units have changed by more than the factor DRIFT."""
        moving = self.units > 0
        ratio = self.objective.units(self.point_at(position))[moving] / self.units[moving]
        return bool((np.maximum(ratio, 1 / ratio) > DRIFT).any())

    def _cached_value(self, name: str, position: np.ndarray, compute: Callable) -> Any:
        """Compute something at a point, unless it is one of the last two."""
        key = position.tobytes()  # a rejected step returns to the point before the last
        if key not in self._cache:
            self._cache = dict([*self._cache.items()][-1:])
        results = self._cache.setdefault(key, {})
        if name not in results:
            results[name] = compute(self.point_at(position))
        return results[name]


def with_defaults(steps: int | None, tolerance: float | None, most: int) -> tuple[int, float]:
    """Return the user's steps and tolerance, or their defaults."""
    return most if steps is None else steps, 1e-9 if tolerance is None else tolerance


def initial_outcome(
    objective: DeterministicLoss,
    start: np.ndarray | Outcome,
    explain: Callable[[], None] = lambda: None,  # raises an error that says why a loss is infinite
) -> Outcome:
    """Return the outcome of no steps from parameters; an outcome is returned as it is."""
    if isinstance(start, Outcome):
        return start
    if not start.size:
        raise ValueError(
            "model and guide have no parameters: there is nothing to train; give the model a "
            "latent site, a sample statement without obs="
        )
    first = objective.value_and_slope(start)[0]
    if not np.isfinite(first):
        explain()
        raise ValueError(
            f"the loss at the start is {first}: begin elsewhere, or scale the data; a random power "
            "a**k has an infinite mean where k is log-normal: write exp(k * log(a))"
        )
    return Outcome([first], point=start)


def in_rounds(
    objective: DeterministicLoss,
    outcome: Outcome,
    steps: int,
    finished: Callable[[Round, np.ndarray], str],  # why it has converged; empty if it has not
    method: str,  # SciPy's name
    options: dict[str, Any],
    report: Report,
) -> Outcome:
    """Go on by rounds of a SciPy method, each in the units of its first point."""
    outcome.converged, outcome.reason = False, f"stopped after {steps} steps"
    while outcome.steps < steps and not outcome.converged:
        current, before = Round(objective, outcome.point), outcome.steps
        curvatures: dict[str, dict[str, Any]] = {
            "trust-exact": {"hess": current.hessian},
            "trust-ncg": {"hessp": current.hessian_product},
        }
        try:
            scipy.optimize.minimize(
                current.value_and_slope,
                np.zeros_like(outcome.point),
                jac=True,
                method=method,
                callback=_callback(current, outcome, steps, finished, report),
                options={**options, "maxiter": steps - before},
                **curvatures.get(method, {}),
            )
        except FloatingPointError as error:
            outcome.stop(False, str(error))
            break
        if outcome.steps == before:  # no step found a lower loss
            slope = current.value_and_slope(np.zeros_like(outcome.point))[1]
            outcome.stop(bool(0.5 * slope @ slope <= FLAT), "no step lowers the loss any more")
            break
    return outcome


def _callback(
    current: Round,
    outcome: Outcome,
    steps: int,
    finished: Callable[[Round, np.ndarray], str],
    report: Report,
) -> Callable[..., None]:
    """Return a callback for SciPy, which records every step and ends a round."""

    def watch(intermediate_result: Any) -> None:  # SciPy requires this name
        position = intermediate_result.x
        outcome.point = current.point_at(position)
        outcome.losses.append(float(intermediate_result.fun))
        outcome.steps += 1
        if report is not None:
            report(outcome.loss)
        if why := finished(current, position):
            outcome.stop(True, why)
        if why or outcome.steps >= steps or current.units_changed(position):
            raise StopIteration

    return watch
