"""Mixtures: likelihoods of observations whose classes are hidden.

A class has a posterior of its own, independent of the parameters. At its best, the bound of
the model with its classes is that of Bishop (2006), 10.2: log Σ_k exp(E log w_k + E log p_k),
which Jensen's inequality puts below E log Σ_k w_k p_k, by half of the variance of the log
ratio of two classes times w (1 − w), to second order, where w is the chance of a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moment_calculus.likelihoods.expectations import expected_value
from moment_calculus.likelihoods.links import expected_log, log_probabilities
from moment_calculus.numerics.arrays import Array, logsumexp, namespace
from moment_calculus.operations.elementwise.factors import is_complement
from moment_calculus.operations.shapes.indexing import unstacked
from moment_calculus.operations.shapes.sticks import log_simplex
from moment_calculus.values.spread import broadcast_shape


def log_mixture(log_shares: Array, logs: Sequence[Array]) -> Array:
    """Return the bound of E log Σ_k w_k p_k from E log w [..., k] and E log p_k [...]."""
    xp = namespace(log_shares)
    shape = broadcast_shape(tuple(log_shares.shape[:-1]), *(tuple(part.shape) for part in logs))
    stacked = xp.stack([xp.broadcast_to(part, shape) for part in logs], axis=-1)
    return logsumexp(stacked + log_shares)


def expected_log_shares(probabilities: Any) -> Array | None:
    """Return E log of a simplex, or of probabilities stacked [..., k]; None of other values."""
    if (logs := log_simplex(probabilities)) is not None:
        return logs
    parts = unstacked(probabilities)
    if parts is None:
        return None
    if is_complementary(parts):
        expected_logs = [expected_value(part) for part in log_probabilities(parts[1])[::-1]]
    else:
        expected_logs = [expected_log(part) for part in parts]
    return namespace(expected_logs[0]).stack(expected_logs, axis=-1)


def is_complementary(parts: Sequence[Any] | None) -> bool:
    """Whether two values are 1 − p and p, functions of the same Gaussian."""
    return parts is not None and len(parts) == 2 and is_complement(*parts)
