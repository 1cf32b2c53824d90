"""Pareto-smoothed leave-one-out cross-validation with draws of an approximation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from moment_calculus.numerics.pareto import (
    ImportanceWeights,
    largest_reliable_shape,
    smooth_weights,
)

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
    def of(cls, log_likelihood: np.ndarray, log_ratios: np.ndarray) -> LeaveOneOut:
        """Compute from log-likelihoods [..., draws] and log p − log q [draws]."""
        shape, count = log_likelihood.shape[:-1], log_likelihood.shape[-1]
        rows, joint, columns = log_likelihood.reshape(-1, count), smooth_weights(log_ratios), []
        for start in range(0, len(rows), ROWS):
            part = rows[start : start + ROWS].astype(np.float64)
            weights = smooth_weights(log_ratios - part)
            means = [logsumexp(each.log + part, axis=-1) for each in (weights, joint)]
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

    def warn_if_bad(self) -> None:
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
                "are unreliable. Take draws of linear_response, a guide with covariances, or NUTS"
            )
        else:
            return
        warnings.warn(text, UserWarning, stacklevel=4)


def most_influential(shapes: np.ndarray, count: int = 1) -> str:
    """Return the indices of the ``count`` data with the largest k̂, as text."""
    order = np.argsort(-shapes.ravel())[:count]
    return ", ".join(str(tuple(map(int, np.unravel_index(at, shapes.shape)))) for at in order)


def no_density_error(reason: str) -> ValueError:
    """Return the error for draws that have no density, hence no importance weights."""
    return ValueError(
        f"these draws have no density that importance weights could be made of: {reason}"
    )
