"""Standard normal draws that are held, for expectations without a moment rule.

The points of a scrambled Sobol sequence are mapped to normals, in antithetic pairs and with unit
variances, so that means and variances of linear functions are exact. A loss with such draws is a
smooth function of the parameters (Giordano, Ingram and Broderick 2023, Black box variational
inference with a deterministic objective).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from moment_calculus import UnsupportedMoments
from moment_calculus.numerics.arrays import Array
from moment_inference.optimisation.natural_newton import Neighbourhood, within_ball
from moment_inference.optimisation.rounds import DeterministicLoss

FEWEST, MOST = 256, 8192  # draws that ``fit`` begins with, and ends with
CLOSE_ENOUGH = 0.1  # error of a mean, in standard deviations, below which there are enough
OTHER_SETS = 4  # of draws, by which the error is found
CERTAIN = 2.0  # error stated, in root mean squares of the differences to those
MOST_DENSE = 1000  # parameters of which the Hessian is made as a matrix
ACCURACY, PRODUCTS, FAR = 0.05, 40, 1e6  # of conjugate gradients


@dataclass(frozen=True)
class HeldDraws:
    """What a fit has integrated by held draws."""

    sites: tuple[str, ...]  # of the model, whose terms have no moment rule
    number: int  # of draws
    # What another set of as many draws may move a mean by, in standard deviations of the guide
    error: float

    @property
    def is_enough(self) -> bool:
        """Return whether more draws would hardly change the means."""
        return self.error <= CLOSE_ENOUGH or self.number >= MOST

    @property
    def next_number(self) -> int:
        """Return how many draws to take next; their error is found anew."""
        return min((2 if self.error <= 2 * CLOSE_ENOUGH else 4) * self.number, MOST)

    def __str__(self) -> str:
        """Describe the draws in words."""
        few = "" if self.error <= CLOSE_ENOUGH else ": too few for this guide"
        return (
            f"{self.number} held draws for {', '.join(self.sites)}: another set moves no mean by "
            f"more than {self.error:.2g} standard deviations{few}"
        )


class TermsOrHeld(ABC):
    """Terms of sites in closed form, or by held draws where they are refused."""

    @abstractmethod
    def require_moments(self, *sites: Any) -> None:
        """Raise UnsupportedMoments if a part of a site was refused."""

    @abstractmethod
    def closed_latent_term(
        self, name: str, site: Any, guide_site: Any, sites: Mapping[str, Any]
    ) -> Array:
        """Return the scaled term of a latent site in closed form."""

    def latent_term(self, name: str, site: Any, guide_site: Any, sites: Mapping[str, Any]) -> Array:
        """Return the scaled term of a latent site, whose ``held`` draws may stand in for it."""
        closed = functools.partial(self.closed_latent_term, name, site, guide_site, sites)
        return self.closed_or_held(name, [site, guide_site], closed)

    def closed_or_held(self, name: str, sites: Sequence[Any], closed: Callable[[], Array]) -> Array:
        """Return a closed term; by the draws of the first site if it is refused and has them."""
        if (held := sites[0].get("held")) is None:
            return closed()
        try:
            self.require_moments(*sites)
            return closed()
        except UnsupportedMoments:
            return held.term(name)

    def with_moments(self, sites: Iterable[Any]) -> Iterator[Any]:
        """Yield the sites of which no part was refused."""
        for site in sites:
            try:
                self.require_moments(site)
            except UnsupportedMoments:
                continue
            yield site


@functools.lru_cache(maxsize=16)
def normal_points(count: int, coordinates: int, which: int = 0) -> np.ndarray:
    """Return draws [count, coordinates]; another number ``which`` gives independent ones."""
    from scipy.stats import qmc  # takes a while to import

    sequence = qmc.Sobol(max(coordinates, 1), scramble=True, seed=np.random.default_rng(which))
    uniform = sequence.random(count // 2)[:, :coordinates]
    half = ndtri(np.clip(uniform, 1e-12, 1 - 1e-12))
    half = half / np.sqrt(np.mean(half**2, axis=0))
    return np.concatenate([half, -half])


def number_of_draws(wanted: int, coordinates: int, is_joint: bool) -> int:
    """Return a power of two that is wanted or, of a Gaussian with covariances, at least needed.

    On fewer pairs than coordinates its spread across the draws has no cost: no lower bound.
    """
    needed = 4 * coordinates if is_joint else 2
    return 1 << (max(wanted, needed) - 1).bit_length()


def error_of_means(
    loss: DeterministicLoss, point: np.ndarray, others: Iterable[DeterministicLoss]
) -> float:
    """Return by how much losses of other draws move a mean, in standard deviations.

    A loss moves its minimum by H⁻¹ times the difference of the slopes, in first order.
    """
    slope = loss.value_and_slope(point)[1]
    differences = [other.value_and_slope(point)[1] - slope for other in others]
    moved = _moves(loss, point, differences)
    largest = np.abs(moved).max(axis=1, initial=0.0)
    return CERTAIN * float(np.sqrt(np.mean(largest**2)))


def _moves(loss: DeterministicLoss, point: np.ndarray, slopes: Sequence[np.ndarray]) -> np.ndarray:
    """Return how far means move, in standard deviations, [slopes, coordinates]."""
    units = loss.units(point)
    if loss.gaussian is not None:
        around = Neighbourhood.of(loss, loss.gaussian, point, units[loss.gaussian.rest])
        return np.stack([_natural_move(around, slope) for slope in slopes])
    if len(point) <= MOST_DENSE:
        steps = np.linalg.solve(loss.hessian(point), np.stack(slopes, axis=1)).T
    else:  # as if the posterior had independent components
        steps = units**2 * np.stack(slopes)
    is_location = units != 1.0 if loss.scales is None else (units != 1.0) & ~loss.scales
    return steps[:, is_location] / units[is_location]


def _natural_move(around: Neighbourhood, slope: np.ndarray) -> np.ndarray:
    local = around.map
    gradient = local.gradient(np.zeros(local.size), slope)
    step = within_ball(replace(around, gradient=gradient), ACCURACY, PRODUCTS, FAR)
    moved = [
        mean / np.sqrt(np.square(part.root).sum(axis=2))
        for mean, part in zip(
            local.moves_of_means(step.coordinates), local.origin.parts, strict=True
        )
    ]
    return np.concatenate([mean.ravel() for mean in moved])
