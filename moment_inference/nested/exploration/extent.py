"""How far a log density reaches from its mode along its axes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from moment_inference.nested.exploration.mode import Evaluate, Mode, find_mode, finite

DEPTH = 8.0  # nats below the best beyond which a point counts as zero
DISTANCES = np.array([0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 15, 25])  # standard deviations
FURTHER = 2.0  # factor of the distances where the density has not fallen yet
LOOKS = 4  # sweeps at most
BETTER = 1e-3  # nats above the mode that make a new start


class Extent(NamedTuple):
    """The box around a mode outside of which the log density is DEPTH nats below its best."""

    mode: Mode
    reach: np.ndarray  # [h, 2] standard deviations to the left and to the right
    scales: np.ndarray  # [h, 2] the same where the density falls by 2 nats, halved

    @property
    def asymmetry(self) -> float:
        """The largest quotient of a right and a left scale, or the reverse."""
        return float(np.exp(np.max(np.abs(np.log(self.scales[:, 1] / self.scales[:, 0])))))


def find_extent(evaluate: Evaluate, start: np.ndarray) -> Extent:
    """Return mode and box; where a sweep along the axes meets a better point, begin there anew."""
    mode = find_mode(evaluate, start)
    drops = _sweep(evaluate, mode, DISTANCES)
    for _ in range(LOOKS):
        best = np.unravel_index(np.argmin(drops), drops.shape)
        if drops[best] > -BETTER:
            break
        step = DISTANCES[best[2]] * (-1, 1)[best[1]] * mode.axes[:, best[0]]
        mode = find_mode(evaluate, mode.point + step)
        drops = _sweep(evaluate, mode, DISTANCES)
    return Extent(mode, _reach(evaluate, mode, drops), _crossing(DISTANCES, drops, 2.0) / 2)


def _sweep(evaluate: Evaluate, mode: Mode, distances: np.ndarray) -> np.ndarray:
    """Return how far the log density lies below the mode's: [h, 2, d], left and right."""
    signed = np.stack([-distances, distances])
    offsets = signed[None, :, :, None] * mode.axes.T[:, None, None, :]
    values = finite(evaluate, (mode.point + offsets).reshape(-1, len(mode.point)))
    return mode.log_density - values.reshape(offsets.shape[:3])


def _reach(evaluate: Evaluate, mode: Mode, drops: np.ndarray) -> np.ndarray:
    """Return where the density is last DEPTH nats below, looking further where it must."""
    distances, factor = DISTANCES, 1.0
    for _ in range(LOOKS):
        if (drops[:, :, -1] >= DEPTH).all():
            break
        factor *= FURTHER
        more = distances[-1] + DISTANCES[-4:] * factor
        drops = np.concatenate([drops, _sweep(evaluate, mode, more)], axis=2)
        distances = np.concatenate([distances, more])
    return _crossing(distances, drops, DEPTH)


def _crossing(distances: np.ndarray, drops: np.ndarray, depth: float) -> np.ndarray:
    """Return [h, 2] the last crossing of a depth, linear in the root of the drop."""
    reach = np.empty(drops.shape[:2])
    for place in np.ndindex(*reach.shape):
        above = np.flatnonzero(drops[place] < depth)
        last = above[-1] if above.size else -1
        if last == len(distances) - 1:
            reach[place] = distances[-1]
            continue
        left = (distances[last], drops[place][last]) if last >= 0 else (0.0, 0.0)
        right = distances[last + 1], drops[place][last + 1]
        reach[place] = _interpolated(left, right, depth)
    return reach


def _interpolated(left: tuple, right: tuple, depth: float) -> float:
    """Return the distance at a depth between two points (distance, drop)."""
    if not np.isfinite(right[1]):
        return float(right[0])
    low, high = np.sqrt(max(left[1], 0.0)), np.sqrt(right[1])
    return float(left[0] + (right[0] - left[0]) * (np.sqrt(depth) - low) / (high - low))
