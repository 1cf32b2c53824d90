"""Newton's method in the natural parameters of a Gaussian, by conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from moment_guides.families.gaussian_parameters import GaussianParameters
from moment_inference.optimisation.local_coordinates import LocalMap
from moment_inference.optimisation.local_coordinates.parts import ROOT
from moment_inference.optimisation.outcome import Outcome
from moment_inference.optimisation.rounds import FLAT, ROUNDING, DeterministicLoss, Report

NATURAL_STEPS = 2  # first steps without the curvature of E log p, kept if the loss falls
PRODUCTS, LAST_PRODUCTS = 15, 100  # most products of one step, and of one near the optimum
NEAR = 1e-3  # nats that a natural step gains near an optimum
RADIUS, LARGEST_RADIUS = 3.0, 10.0  # of the trust region, in the Fisher metric
LARGEST_MOVE = 2.0  # the same for each of many components, root mean square
ACCEPTED, POOR, GOOD = 0.1, 0.3, 0.7  # shares of the promised gain
LEAST_RADIUS = 1e-6
EXACT = float(np.finfo(float).eps)
NO_LOWER = "no step lowers the loss any more"
FLAT_CURVATURE = 1e-9  # relative curvature that counts as none
SMALLER, DROP = 0.3, 0.1  # factor of scales at the start, and the part of the loss they leave
DOUBLE = 1e-9  # rounding unit below which differences to one side are exact enough for a step

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
    # Products with the conjugate directions of this gradient; one with another has its own.
    images: list[np.ndarray] = field(default_factory=list, init=False)

    def image(self, count: int, direction: np.ndarray) -> np.ndarray:
        """Return the product with the direction of a number, computed once."""
        if count == len(self.images):
            self.images.append(self.product(direction))
        return self.images[count]

    @classmethod
    def of(
        cls,
        objective: DeterministicLoss,
        parameters: GaussianParameters,
        vector: np.ndarray,
        units: np.ndarray,
        is_for_step: bool = False,  # whether products may have an error of 1e-6
    ) -> Neighbourhood:
        """Return the loss around a vector of parameters."""
        local = LocalMap(parameters, parameters.point(vector), units)
        loss, slope = objective.value_and_slope(vector)
        gradient = local.gradient(np.zeros(local.size), slope)

        def slope_along(step: np.ndarray) -> np.ndarray:
            there = parameters.vector(local.point(step))
            return local.gradient(step, objective.value_and_slope(there)[1])

        def slope_held(step: np.ndarray) -> np.ndarray:
            return local.gradient(step, slope)

        def derivative(function: Product, direction: np.ndarray, precision: float) -> np.ndarray:
            here = gradient if is_for_step and precision < DOUBLE else None
            return _derivative(function, direction, precision, here)

        def by_differences(direction: np.ndarray) -> np.ndarray:
            return derivative(slope_along, direction, objective.precision)

        def by_products(direction: np.ndarray) -> np.ndarray:
            image = objective.hessian_product(vector, local.direction(direction))
            bend = derivative(slope_held, direction, EXACT)
            return local.gradient(np.zeros(local.size), image) + bend

        product = by_differences if objective.is_compiled else by_products
        return cls(local, loss, gradient, product)


def units_of_rest(
    objective: DeterministicLoss, parameters: GaussianParameters, vector: np.ndarray
) -> np.ndarray:
    """Return units of the parameters that are no Gaussian's; without any nothing is compiled."""
    rest = parameters.rest
    return objective.units(vector)[rest] if rest.size else np.zeros(0)


def _derivative(
    function: Callable[[np.ndarray], np.ndarray],
    direction: np.ndarray,
    precision: float,
    here: np.ndarray | None,  # the value at zero: differences to one side
) -> np.ndarray:
    """Return the derivative of a function at zero along a direction, by differences."""
    length = float(np.linalg.norm(direction)) or 1.0
    if here is not None:
        small = precision**0.5 / length
        return (function(small * direction) - here) / small
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
        product = neighbourhood.image(count - 1, direction)
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


def softened(local: LocalMap, step: np.ndarray) -> np.ndarray:
    """Return the step to blocks of the precision (I + P²) / 2 in place of P = I − √2 B.

    It is the same for small steps, and positive definite where P is not: a third of the steps
    of walks were thrown away for that.
    Source: Lin, Schmidt and Khan 2020, Handling the positive-definite constraint in the Bayesian
    learning rule.
    """
    parts, rest = local.split(step)
    for part in parts:
        own = part.b[..., part.b.shape[2] - part.b.shape[1] :]
        own -= own @ own / ROOT
    return local.joined(parts, rest)


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
        point = self.outcome.point
        units = units_of_rest(self.objective, self.parameters, point)
        return Neighbourhood.of(self.objective, self.parameters, point, units, is_for_step=True)

    def _moved_naturally(self, around: Neighbourhood) -> bool:
        """Step along the natural gradient, or to smaller scales, if the loss falls by it."""
        if len(self.parameters.rest):
            return False
        before, found = self.outcome.loss, self._loss_after(around, -around.gradient)
        found = found if found and found[1] < before else None
        if before > 0 and not (found and found[1] > DROP * before):  # as with exp of a long walk
            found = self._with_smaller_scales() or found
        if found is None:
            return False
        self._accept(*found)
        return True

    def _with_smaller_scales(self) -> tuple | None:
        """Return parameters and the loss at smaller scales, if it falls to a fraction at each."""
        point, found = self.outcome.point, (self.outcome.point, self.outcome.loss)
        while True:
            point = _with_scales(self.parameters, point, SMALLER)
            loss = self.objective.value_and_slope(point)[0]
            if not loss < DROP * found[1]:
                return found if found[1] < self.outcome.loss else None
            found = point, loss

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
            found = self._found(around, step)
            share = (outcome.loss - found[1]) / step.promised if found else -np.inf
            if found and share >= ACCEPTED:
                self._resize(share, step)
                self._accept(*found)
                return
            self.radius = 0.3 * min(self.radius, float(np.linalg.norm(step.coordinates)))
            if self.radius < LEAST_RADIUS:
                self._give_up(step)
                return

    def _found(self, around: Neighbourhood, step: Step) -> tuple | None:
        """Return parameters and the loss after a step in natural parameters, or a softer one."""
        found = self._loss_after(around, step.coordinates)
        if found and self.outcome.loss - found[1] >= ACCEPTED * step.promised:
            return found
        return self._loss_after(around, softened(around.map, step.coordinates)) or found

    def _give_up(self, step: Step) -> None:
        is_small = step.promised <= FLAT
        self.outcome.stop(is_small, NO_LOWER)

    def _resize(self, share: float, step: Step) -> None:
        if share < POOR:
            self.radius = 0.7 * float(np.linalg.norm(step.coordinates))
        elif share > GOOD and step.is_at_edge:
            count = sum(part.locs.size for part in self.parameters.parts)
            self.radius = min(2 * self.radius, max(LARGEST_RADIUS, LARGEST_MOVE * count**0.5))

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


def _with_scales(parameters: GaussianParameters, vector: np.ndarray, factor: float) -> np.ndarray:
    """Return parameters of the same Gaussian with all standard deviations times a factor."""
    point = parameters.point(vector)
    parts = tuple(part._replace(root=factor * part.root) for part in point.parts)
    return parameters.vector(point._replace(parts=parts))
