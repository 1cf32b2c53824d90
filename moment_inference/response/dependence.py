"""Whether independent coordinates misplace means: an alarm without draws or chains.

One natural step is made from the mean-field optimum with a Gaussian that has covariances. It is
exact where E log p is quadratic, so that what is left of the slope tells that means move, too.
"""

from __future__ import annotations

import numpy as np

from moment_guides.families.gaussian import LatentVector
from moment_inference.optimisation.natural_newton import Neighbourhood
from moment_inference.optimisation.outcome import Dependence
from moment_inference.optimisation.rounds import DeterministicLoss

SETTLED = 1e-3  # nats that mean field's own slope may promise at its optimum
SHORTEST = 0.05  # share of a natural step below which none lowers the loss
MOST_SITES, LARGE = 3, 0.7  # sites named, and the share of the slope at which they are enough


def dependence_at(
    objective: DeterministicLoss, optimum: np.ndarray, vector: LatentVector
) -> Dependence:
    """Return the dependence at a mean-field optimum, by the loss of a Gaussian with covariances.

    ``optimum`` has its parameters, with a factor of zero.
    """
    around = _around(objective, optimum)
    own = _of_independent(around) @ around.gradient / 2
    if not own <= SETTLED:
        return Dependence(
            reason=f"the parameters are no optimum: their slope promises {own:.1g} nats"
        )
    share = 1.0
    while share >= SHORTEST:
        point = around.map.moved(-share * around.gradient)
        if point is not None:
            assert objective.gaussian is not None
            after = _around(objective, objective.gaussian.vector(point))
            if after.loss <= around.loss + SETTLED:  # also if it is NaN: no
                return _left(after, vector)
        share /= 2
    return Dependence(reason="no natural step lowers the loss")


def _around(objective: DeterministicLoss, point: np.ndarray) -> Neighbourhood:
    """Return the loss around a Gaussian, where no other parameter moves."""
    assert objective.gaussian is not None
    still = np.zeros(len(objective.gaussian.rest))
    return Neighbourhood.of(objective, objective.gaussian, point, still)


def _of_independent(around: Neighbourhood) -> np.ndarray:
    """Return the slope along means and variances of single coordinates."""
    parts, t = around.map.split(around.gradient)
    for part, origin in zip(parts, around.map.origin.parts, strict=True):
        width = origin.mean.shape[1]
        part.b[:] *= np.eye(width, part.b.shape[2], part.b.shape[2] - width)
        part.c[:] = 0
    return around.map.joined(parts, t)


def _left(after: Neighbourhood, vector: LatentVector) -> Dependence:
    by_coordinate = _by_coordinate(after, vector)
    by_site = {name: by_coordinate[part].sum() for name, part in vector.slices.items()}
    ordered = sorted(by_site, key=lambda name: -by_site[name])
    parts = np.cumsum([by_site[name] for name in ordered])
    enough = int(np.argmax(parts >= LARGE * parts[-1])) + 1
    if vector.slices[ordered[0]].stop - vector.slices[ordered[0]].start == 1:
        enough = max(enough, 2)  # one number leans on others
    left = float(after.gradient @ after.gradient) / 2
    return Dependence(left, tuple(ordered[: min(enough, MOST_SITES)]))


def _by_coordinate(after: Neighbourhood, vector: LatentVector) -> np.ndarray:
    """Return what each coordinate contributes to the square of the slope, [d]."""
    result = np.zeros(vector.size)
    parts = after.map.split(after.gradient)[0]
    for part, origin, places in zip(parts, after.map.origin.parts, vector.parts, strict=True):
        shared = places.shared
        root, beside, own = origin.root[..., shared:], part.b[..., :shared], part.b[..., shared:]
        backwards = np.swapaxes(np.linalg.inv(root), 1, 2)
        by_mean = (backwards @ part.a[..., None] * (root @ part.a[..., None]))[..., 0]
        by_spread = ((backwards @ own @ own) * root).sum(-1)
        result[places.places] = by_mean + by_spread + (beside**2).sum(-1)
        result[vector.shared] += (beside**2).sum((0, 1)) if shared else 0.0
        result[places.places[1:][: len(part.c)]] += (part.c**2).sum(-1)
    return result
