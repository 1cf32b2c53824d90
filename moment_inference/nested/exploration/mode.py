"""The mode of a log density by Newton steps, with differences over one batch of points each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

Evaluate = Callable[[np.ndarray], np.ndarray]  # points [g, h] -> log densities [g]

MOST_STEPS = 60
WIDTH, CAREFUL_WIDTH = 0.2, 0.1  # of differences, in standard deviations
FIRST_UNIT = 0.5  # a guess of the standard deviations, on unconstrained scales
LEAST_UNIT, LARGEST_UNIT = 1e-4, 10.0
FLAT = 1e-3  # curvature in these units that counts as none
LENGTHS = (0.1, 0.3, 0.6, 1.0, 1.5, 3.0, 8.0)  # of a Newton step, tried in one batch
SIDEWAYS = (-3.0, -0.6, 0.6, 3.0)  # steps along the direction of most positive curvature
LARGEST_MOVE = 4.0  # of a step, in units
CLOSE, NEAR = 1e-5, 1e-2  # nats left to gain, the latter if no step gains any: rounding
FARTHEST = 40.0  # from the start, in largest units
AROUND = (-6.0, -3.0, -1.5, 1.5, 3.0, 6.0)  # where to look if the density fails at the start
SHRINKS = 6


class NoMode(ValueError):
    """A log density has no maximum at a finite point: it stays flat or rises along a direction."""

    def __init__(self, message: str, direction: np.ndarray) -> None:
        super().__init__(message)
        self.direction = direction


@dataclass(frozen=True)
class Mode:
    """A local maximum [h], and standard deviations along the eigenvectors of its Hessian."""

    point: np.ndarray
    log_density: float
    hessian: np.ndarray  # [h, h]
    axes: np.ndarray  # [h, h], columns: eigenvectors, each one standard deviation long


class Derivatives(NamedTuple):
    """A gradient [h] and a Hessian [h, h] in units: theta = point + units z."""

    gradient: np.ndarray
    hessian: np.ndarray
    units: np.ndarray  # [h, h]


def finite(evaluate: Evaluate, points: np.ndarray) -> np.ndarray:
    """Return log densities [g], minus infinity where the density fails."""
    values = np.asarray(evaluate(points), dtype=float)
    return np.where(np.isfinite(values), values, -np.inf)


def find_mode(evaluate: Evaluate, start: np.ndarray) -> Mode:
    """Climb to a local maximum; raises NoMode where there is none at a finite point."""
    units = FIRST_UNIT * np.eye(len(start))
    begin, value = _first_point(evaluate, np.asarray(start, dtype=float), units)
    point = begin
    for _ in range(MOST_STEPS):
        there = differences(evaluate, point, units, WIDTH)
        candidates = point + _steps(there) @ there.units.T
        values = finite(evaluate, candidates)
        gain = float(np.max(values)) - value
        if _left(there) < (CLOSE if gain > 0 else NEAR):
            return _at_mode(evaluate, point, _natural_units(there))
        is_level = gain <= 0.1 * CLOSE and _is_flat(there)
        if is_level and np.linalg.norm(_flattest(there)) > LARGEST_UNIT / 2:
            raise _no_mode(begin, point, _flattest(there))
        if gain > 0:
            point, value = candidates[np.argmax(values)], float(np.max(values))
        units = _natural_units(there) if gain > 0 or is_level else 0.3 * there.units
        if np.linalg.norm(point - begin) > FARTHEST * max(1.0, float(np.linalg.norm(units, 2))):
            raise _no_mode(begin, point, point - begin)
    return _at_mode(evaluate, point, units)


def differences(
    evaluate: Evaluate, point: np.ndarray, units: np.ndarray, width: float
) -> Derivatives:
    """Return derivatives by central differences, narrower where the density fails nearby."""
    offsets = stencil(len(point))
    for _ in range(SHRINKS):
        values = finite(evaluate, point + width * offsets @ units.T)
        if np.isfinite(values).all():
            return Derivatives(*_combined(values, len(point), width), units)
        units = units / 4
    raise ValueError(
        f"the log density of the hyperparameters is not finite in a neighbourhood of {point}"
    )


def stencil(size: int) -> np.ndarray:
    """Return the offsets [1 + 2 h + 2 h (h - 1), h] of central differences of order two."""
    identity = np.eye(size)
    single = [sign * row for row in identity for sign in (1, -1)]
    pairs = [
        first * identity[i] + second * identity[j]
        for i, j in combinations(range(size), 2)
        for first, second in product((1, -1), repeat=2)
    ]
    return np.array([np.zeros(size), *single, *pairs])


def _combined(values: np.ndarray, size: int, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient and Hessian from log densities on a stencil."""
    up, down = values[1 : 1 + 2 * size].reshape(size, 2).T
    hessian = np.diag((up + down - 2 * values[0]) / width**2)
    corners = values[1 + 2 * size :].reshape(-1, 4) @ np.array([1, -1, -1, 1])
    for (i, j), corner in zip(combinations(range(size), 2), corners, strict=True):
        hessian[i, j] = hessian[j, i] = corner / (4 * width**2)
    return (up - down) / (2 * width), hessian


def _first_point(
    evaluate: Evaluate, start: np.ndarray, units: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the start, or the best point around it where the density fails there."""
    value = float(finite(evaluate, start + WIDTH * stencil(len(start)) @ units.T)[0])
    if np.isfinite(value):
        return start, value
    points = start + np.array([step * row for row in np.eye(len(start)) for step in AROUND])
    values = finite(evaluate, points)
    best = int(np.argmax(values))
    if not np.isfinite(values[best]):
        raise ValueError(
            f"the log density of the hyperparameters is not finite at {start} and around it"
        )
    return points[best], float(values[best])


def _steps(there: Derivatives) -> np.ndarray:
    """Return candidates [c, h] for the next step, in units: Newton's, uphill, and sideways."""
    curvatures, vectors = np.linalg.eigh(there.hessian)
    along = vectors.T @ there.gradient
    newton = _bounded(vectors @ (along / np.maximum(np.abs(curvatures), FLAT)))
    uphill = there.gradient / (np.linalg.norm(there.gradient) or 1.0)
    multiples = np.outer(LENGTHS, newton), np.outer(LENGTHS[1:-1], uphill)
    return np.concatenate([*multiples, np.outer(SIDEWAYS, vectors[:, -1])])


def _bounded(step: np.ndarray) -> np.ndarray:
    """Return a step of at most the largest length."""
    return step * min(1.0, LARGEST_MOVE / (np.linalg.norm(step) or 1.0))


def _natural_units(there: Derivatives) -> np.ndarray:
    """Return units in which the Hessian is about minus the identity."""
    curvatures, vectors = np.linalg.eigh(there.hessian)
    wanted = 1 / np.sqrt(np.maximum(np.abs(curvatures), FLAT))
    units = there.units @ (vectors * np.clip(wanted, 0.1, 5.0))
    lengths = np.linalg.norm(units, axis=0)
    return units * (np.clip(lengths, LEAST_UNIT, LARGEST_UNIT) / lengths)


def _is_flat(there: Derivatives) -> bool:
    """Whether some direction has no negative curvature."""
    return bool(np.linalg.eigvalsh(there.hessian)[-1] > -FLAT)


def _left(there: Derivatives) -> float:
    """Return how many nats the quadratic model promises, infinite unless it is concave."""
    curvatures, vectors = np.linalg.eigh(there.hessian)
    if curvatures[-1] > -FLAT:
        return np.inf
    return float(0.5 * np.sum((vectors.T @ there.gradient) ** 2 / -curvatures))


def _flattest(there: Derivatives) -> np.ndarray:
    """Return the direction [h] of the least negative curvature, uphill."""
    direction = np.linalg.eigh(there.hessian)[1][:, -1]
    return there.units @ (direction * (np.sign(direction @ there.gradient) or 1.0))


def _no_mode(begin: np.ndarray, point: np.ndarray, direction: np.ndarray) -> NoMode:
    """Say along which coordinate the density runs off."""
    number = int(np.argmax(np.abs(direction)))
    end = "minus infinity" if direction[number] < 0 else "infinity"
    return NoMode(
        f"the posterior of the hyperparameters has no mode: from {begin} to {point} it does not "
        f"fall along direction {np.round(direction, 3)}, hyperparameter number {number} towards "
        f"{end} (on its unconstrained scale); give that hyperparameter a prior that keeps it away "
        "from there, or leave it out",
        direction,
    )


def _at_mode(evaluate: Evaluate, point: np.ndarray, units: np.ndarray) -> Mode:
    """Return the mode after one more step, with careful differences in natural units."""
    there = differences(evaluate, point, units, CAREFUL_WIDTH)
    curvatures, vectors = np.linalg.eigh(there.hessian)
    newton = vectors @ ((vectors.T @ there.gradient) / np.maximum(np.abs(curvatures), FLAT))
    both = np.array([point, point + there.units @ _bounded(newton)])
    values = finite(evaluate, both)
    best = int(np.argmax(values))
    back = np.linalg.inv(there.units)
    hessian = back.T @ there.hessian @ back
    return Mode(both[best], float(values[best]), hessian, _standard_axes(hessian))


def _standard_axes(hessian: np.ndarray) -> np.ndarray:
    """Return eigenvectors scaled to standard deviations, columns [h, h]."""
    curvatures, vectors = np.linalg.eigh(-hessian)
    least = FLAT / LARGEST_UNIT**2
    return vectors / np.sqrt(np.maximum(np.abs(curvatures), least))
