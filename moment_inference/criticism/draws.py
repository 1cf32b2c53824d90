"""Draws of a model's latent sites, and what their importance weights tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from moment_calculus.errors import warn_user
from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.numerics.pareto import (
    ImportanceWeights,
    check_ratios,
    largest_reliable_shape,
    log_sum_exp,
    smooth_weights,
)
from moment_inference.errors import check_reliable
from moment_inference.response.response import MIN_PROPOSALS, PROPOSALS_PER_DRAW, Response

Arrays = Mapping[str, np.ndarray]  # by site


@dataclass(frozen=True)
class Draws:
    """Draws of the latent sites of a model, of its posterior or of an approximation."""

    source: str  # class name of the guide, "LinearResponse", or name of the MCMC kernel
    values: Arrays  # by site, on its support, [chains, draws, ...]
    # of the sampler, by ArviZ's names, [chains, draws]
    statistics: Arrays = field(default_factory=dict)
    # Of an approximation: log q of every draw on the sites' supports, [chains, draws], or
    # why it does not exist or is not known, as text for the user.
    log_density: np.ndarray | None = None
    without_density: str = ""
    # Of an approximation resampled by importance weights: k̂ and their effective share.
    resampled_by: str = ""

    @classmethod
    def of_response(cls, response: Response, generator: np.random.Generator, count: int) -> Draws:
        """Draw from the corrected posterior, with log q where it can be computed."""
        log_density, reason = None, ""
        try:
            sites, density = response.weighted_draws(generator, count)
            log_density = density[None]
        except ValueError as error:
            sites, reason = response.plain_draws(generator, count), str(error)
        values = {name: to_numpy(value)[None] for name, value in sites.items()}
        return cls("LinearResponse", values, {}, log_density, reason)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of chains and of draws per chain."""
        chains, draws = next(iter(self.values.values())).shape[:2]
        return chains, draws

    @property
    def first(self) -> dict[str, np.ndarray]:
        """Return the first draw of every site."""
        return {name: value[0, 0] for name, value in self.values.items()}

    @property
    def flat(self) -> dict[str, np.ndarray]:
        """Return the values with all chains joined, [chains · draws, ...] by site."""
        return {name: value.reshape(-1, *value.shape[2:]) for name, value in self.values.items()}

    def by_chain(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """Return arrays [chains · draws, ...] as [chains, draws, ...]."""
        return {name: part.reshape(*self.shape, *part.shape[1:]) for name, part in arrays.items()}

    def thinned(self, count: int) -> Draws:
        """Return every n-th draw: at most ``count`` in all, at least one of each chain."""
        chains, draws = self.shape
        step = -(-draws // max(1, count // chains))
        if step == 1:
            return self
        density = None if self.log_density is None else self.log_density[:, ::step]
        return replace(
            self,
            values={name: value[:, ::step] for name, value in self.values.items()},
            statistics={name: value[:, ::step] for name, value in self.statistics.items()},
            log_density=density,
        )

    def weights(self, log_joint: Callable[[Arrays], np.ndarray]) -> ImportanceWeights:
        """Return smoothed importance weights p / q; ``log_joint`` takes flat draws."""
        if self.without_density:
            raise no_density_error(self.without_density)
        if self.log_density is None:
            raise ValueError(
                f"draws of {self.source} are of the posterior itself: importance_weights is for "
                "draws of a guide or of linear response"
            )
        return smooth_weights(check_ratios(log_joint(self.flat) - self.log_density.ravel()))


def proposal_count(count: int) -> int:
    """Return the number of proposals from which ``count`` draws are resampled."""
    return max(PROPOSALS_PER_DRAW * count, MIN_PROPOSALS)


def resample(
    draws: Draws,
    log_joint: Callable[[Arrays], np.ndarray],  # from flat draws by site to log p [draws]
    generator: np.random.Generator,
    count: int,
) -> Draws:
    """Resample ``count`` draws by smoothed importance weights p / q."""
    weights = draws.weights(log_joint)
    check_reliable(weights, draws.source, draws.values)
    indices = weights.resample_indices(generator, count)
    values: dict[str, Any] = {name: value[indices][None] for name, value in draws.flat.items()}
    return Draws(f"{draws.source}, resampled", values, resampled_by=str(weights))


APPROXIMATION_REMEDY = "Take draws of linear_response, a guide with covariances, or NUTS"
ROWS = 4096  # data whose weights are in memory at once, in double precision


@dataclass(frozen=True)
class LeaveOneOut:
    """Leave-one-out log predictive densities; arrays have the shape of the data.

    Source: Magnusson et al. 2019, Bayesian leave-one-out cross-validation for large data.
    """

    left_out: np.ndarray  # log p(y | other data)
    within: np.ndarray  # log p(y | all data)
    shapes: np.ndarray  # k̂ of the weights of each datum
    is_bad: np.ndarray  # whether these weights have a tail that matters
    joint: ImportanceWeights  # of the approximation as a whole

    @classmethod
    def of(
        cls, log_likelihood: np.ndarray, log_ratios: np.ndarray, efficiency: float = 1.0
    ) -> LeaveOneOut:
        """Compute from log-likelihoods [..., draws] and log p − log q [draws]."""
        shape, count = log_likelihood.shape[:-1], log_likelihood.shape[-1]
        rows, joint, columns = log_likelihood.reshape(-1, count), smooth_weights(log_ratios), []
        for start in range(0, len(rows), ROWS):
            part = rows[start : start + ROWS].astype(np.float64)
            weights = smooth_weights(log_ratios - part, efficiency)
            means = [log_sum_exp(each.log + part) for each in (weights, joint)]
            columns.append([*means, weights.shape, weights.is_heavy])
        arrays: Any = (np.concatenate(part).reshape(shape) for part in zip(*columns, strict=True))
        left_out, within, shapes, is_bad = arrays
        return cls(left_out, within, shapes, is_bad, joint)

    @property
    def any_bad(self) -> bool:
        """Return whether weights of a datum, or of all together, cannot be trusted."""
        return bool(self.is_bad.any() or not self.joint.is_reliable)

    @property
    def largest_shape(self) -> float:
        """Return the largest k̂ that can be trusted."""
        return largest_reliable_shape(self.joint.log.size)

    def warn_if_bad(self, remedy: str = APPROXIMATION_REMEDY) -> None:
        """Warn if weights cannot be trusted."""
        if not self.joint.is_reliable:
            text = (
                "the importance weights of the approximation as a whole cannot be trusted (k̂ "
                f"{self.joint}), which says nothing of single data: with many latent sites it is "
                "the rule, also where the marginal of each is right. loo(..., "
                "importance_weights=False) takes the draws as those of the posterior, without a "
                "correction; or take NUTS"
            )
        elif self.is_bad.any():
            text = (
                f"leave-one-out weights of {self.is_bad.sum()} of {self.is_bad.size} data have "
                f"Pareto shapes that are too large, those of {most_influential(self.shapes, 3)} "
                f"the largest (k̂ up to {self.shapes.max():.2f}): their log predictive densities "
                f"are unreliable. {remedy}"
            )
        else:
            return
        warn_user(text, UserWarning)


def most_influential(shapes: np.ndarray, count: int = 1) -> str:
    """Return the indices of the ``count`` data with the largest k̂, as text."""
    order = np.argsort(-shapes.ravel())[:count]
    return ", ".join(str(tuple(map(int, np.unravel_index(at, shapes.shape)))) for at in order)


def no_density_error(reason: str) -> ValueError:
    """Return the error for draws that have no density, hence no importance weights."""
    return ValueError(
        f"these draws have no density that importance weights could be made of: {reason}"
    )
