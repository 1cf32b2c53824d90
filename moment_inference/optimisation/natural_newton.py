"""Newton's method in the natural parameters of a Gaussian, by conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from moment_guides.families.gaussian_parameters import GaussianParameters
from moment_inference.optimisation.local_coordinates import LocalMap
from moment_inference.optimisation.outcome import Outcome
from moment_inference.optimisation.rounds import FLAT, ROUNDING, DeterministicLoss, Report

NATURAL_STEPS = 2  # first steps without the curvature of E log p, kept if the loss falls
PRODUCTS, LAST_PRODUCTS = 15, 100  # most products of one step, and of one near the optimum
NEAR = 1e-3  # nats that a natural step gains near an optimum
RADIUS, LARGEST_RADIUS = 3.0, 10.0  # of the trust region, in the Fisher metric
ACCEPTED, POOR, GOOD = 0.1, 0.3, 0.7  # shares of the promised gain
LEAST_RADIUS = 1e-6
EXACT = float(np.finfo(float).eps)
NO_LOWER = "no step lowers the loss any more"
FLAT_CURVATURE = 1e-9  # relative curvature that counts as none

Product = Callable[[np.ndarray], np.ndarray]


class Step(NamedTuple):
    """A step that minimises the quadratic model of the loss within a ball."""

    coordinates: np.ndarray
    promised: float  # by how much the model falls, nats
    products: int
    is_at_edge: bool  # whether the ball has stopped it
    is_solved: bool  # whether it is the minimum of the model


@dataclass
class Neighbourhood:
    """The loss around one Gaussian, in its local coordinates."""

    map: LocalMap
    loss: float
    gradient: np.ndarray
    product: Product  # with the Hessian

    @classmethod
    def of(
        cls,
        objective: DeterministicLoss,
        parameters: GaussianParameters,
        vector: np.ndarray,
        units: np.ndarray,
    ) -> Neighbourhood:
        """Return the loss around a vector of parameters."""
        local = LocalMap(parameters, parameters.point(vector), units)
        loss, slope = objective.value_and_slope(vector)
        gradient = local.gradient(np.zeros(local.size), slope)

        def slope_along(step: np.ndarray) -> np.ndarray:
            there = parameters.vector(local.point(step))
            return local.gradient(step, objective.value_and_slope(there)[1])

        def by_differences(direction: np.ndarray) -> np.ndarray:
            return _derivative(slope_along, direction, objective.precision)

        def by_products(direction: np.ndarray) -> np.ndarray:
            image = objective.hessian_product(vector, local.direction(direction))
            bend = _derivative(lambda step: local.gradient(step, slope), direction, EXACT)
            return local.gradient(np.zeros(local.size), image) + bend

        product = by_differences if objective.is_compiled else by_products
        return cls(local, loss, gradient, product)


def _derivative(
    function: Callable[[np.ndarray], np.ndarray], direction: np.ndarray, precision: float
) -> np.ndarray:
    """Return the derivative of a function at zero along a direction, by central differences."""
    length = float(np.linalg.norm(direction)) or 1.0
    small = precision ** (1 / 3) / length
    return (function(small * direction) - function(-small * direction)) / (2 * small)


def within_ball(neighbourhood: Neighbourhood, accuracy: float, most: int, radius: float) -> Step:
    """Minimise the quadratic model within a ball by conjugate gradients.

    Source: Steihaug 1983, The conjugate gradient method and trust regions.
    """
    gradient = neighbourhood.gradient
    step, image = np.zeros_like(gradient), np.zeros_like(gradient)
    residual = -gradient
    direction, squared = residual, float(residual @ residual)
    enough = accuracy**2 * squared
    for count in range(1, most + 1):
        if squared <= enough:
            return _step(gradient, step, image, count - 1, is_solved=True)
        product = neighbourhood.product(direction)
        curvature = float(direction @ product)
        length = squared / curvature if curvature else np.inf
        ahead = step + length * direction
        if curvature <= FLAT_CURVATURE * float(direction @ direction) or (
            float(ahead @ ahead) > radius**2
        ):
            length = _to_edge(step, direction, radius)
            step, image = step + length * direction, image + length * product
            return _step(gradient, step, image, count, is_at_edge=True)
        step, image, residual = ahead, image + length * product, residual - length * product
        before, squared = squared, float(residual @ residual)
        direction = residual + squared / before * direction
    return _step(gradient, step, image, most, is_solved=squared <= enough)


def _step(
    gradient: np.ndarray,
    step: np.ndarray,
    image: np.ndarray,  # Hessian times step
    products: int,
    is_at_edge: bool = False,
    is_solved: bool = False,
) -> Step:
    promised = -float(gradient @ step) - float(step @ image) / 2
    return Step(step, promised, products, is_at_edge, is_solved)


def _to_edge(step: np.ndarray, direction: np.ndarray, radius: float) -> float:
    """Return how many directions lead from a step to the ball's edge."""
    square, along = float(direction @ direction), float(step @ direction)
    rest = float(step @ step) - radius**2
    return (-along + float(np.sqrt(along**2 - square * rest))) / square


@dataclass
class NaturalNewton:
    """A training by Newton's method in natural parameters, with what the next step needs."""

    objective: DeterministicLoss
    parameters: GaussianParameters
    outcome: Outcome
    tolerance: float  # nats that another step may gain at the end
    radius: float = RADIUS

    def advance(self, steps: int, report: Report) -> Outcome:
        """Go on until a step would gain nothing more, or to a number of steps."""
        outcome = self.outcome
        outcome.stop(False, f"stopped after {steps} steps")
        while outcome.steps < steps and not outcome.converged:
            around = self._neighbourhood()
            if not (outcome.steps < NATURAL_STEPS and self._moved_naturally(around)):
                self._move(around)
            if outcome.reason == NO_LOWER:
                break
            if report is not None and not outcome.converged:
                report(outcome.loss)
        return outcome

    def _neighbourhood(self) -> Neighbourhood:
        units = self.objective.units(self.outcome.point)[self.parameters.rest]
        return Neighbourhood.of(self.objective, self.parameters, self.outcome.point, units)

    def _moved_naturally(self, around: Neighbourhood) -> bool:
        """Step along the natural gradient if the loss falls by it."""
        if len(self.parameters.rest):
            return False
        found = self._loss_after(around, -around.gradient)
        if not (found and found[1] < self.outcome.loss):
            return False
        self._accept(*found)
        return True

    def _move(self, around: Neighbourhood) -> None:
        """Take a step by the curvature, in a ball that shrinks until the loss falls."""
        outcome, length = self.outcome, float(np.linalg.norm(around.gradient))
        is_near = length**2 / 2 < NEAR
        accuracy, most = min(0.3, length**0.5), LAST_PRODUCTS if is_near else PRODUCTS
        while True:
            step = within_ball(around, accuracy, most, self.radius)
            outcome.decrement = step.promised
            if step.is_solved and step.promised <= self._threshold:
                outcome.has_small_decrement = True
                outcome.stop(True, f"the Newton decrement is {step.promised:.1e}")
                return
            found = self._loss_after(around, step.coordinates)
            share = (outcome.loss - found[1]) / step.promised if found else -np.inf
            if found and share >= ACCEPTED:
                self._resize(share, step)
                self._accept(*found)
                return
            self.radius = 0.3 * min(self.radius, float(np.linalg.norm(step.coordinates)))
            if self.radius < LEAST_RADIUS:
                self._give_up(step)
                return

    def _give_up(self, step: Step) -> None:
        is_small = step.promised <= FLAT
        self.outcome.stop(is_small, NO_LOWER)

    def _resize(self, share: float, step: Step) -> None:
        if share < POOR:
            self.radius = 0.7 * float(np.linalg.norm(step.coordinates))
        elif share > GOOD and step.is_at_edge:
            self.radius = min(2 * self.radius, LARGEST_RADIUS)

    @property
    def _threshold(self) -> float:
        return max(self.tolerance, ROUNDING * self.objective.precision * abs(self.outcome.loss))

    def _loss_after(self, around: Neighbourhood, step: np.ndarray) -> tuple | None:
        """Return parameters and the loss after a step; None where it is not finite."""
        point = around.map.moved(step)
        if point is None:
            return None
        vector = self.parameters.vector(point)
        loss = self.objective.value_and_slope(vector)[0]
        return (vector, loss) if np.isfinite(loss) else None

    def _accept(self, vector: np.ndarray, loss: float) -> None:
        self.outcome.point = vector
        self.outcome.losses.append(loss)
        self.outcome.steps += 1


def natural_newton(
    objective: DeterministicLoss,
    parameters: GaussianParameters,
    outcome: Outcome,
    steps: int,
    tolerance: float,
    report: Report,
) -> Outcome:
    """Minimise a loss of a Gaussian by Newton's method in its natural parameters."""
    return NaturalNewton(objective, parameters, outcome, tolerance).advance(steps, report)
