"""Closed forms for the mean of a softmax of Gaussian logits, as published: for predictions.

They are rougher than the fixed points of the default, and reproduce tables of the papers.
Root mean square errors of the probabilities of 3 and 10 classes with correlated logits, at logit
variances of 0.1, 1 and 10:

============ ====== ====== ======
rule            0.1      1     10
============ ====== ====== ======
logistic     0.0030 0.0191 0.0362
normal       0.0802 0.0809 0.0773
simplified   0.0051 0.0293 0.0928
taylor       0.0004 0.0209 0.2709
pairs        0.0001 0.0023 0.0100
points       0.0001 0.0005 0.0017
============ ====== ====== ======
"""

from __future__ import annotations

import math
from abc import abstractmethod

from moment_calculus.likelihoods.classes.pairs import Pairs
from moment_calculus.likelihoods.classes.rule import Delta
from moment_calculus.numerics.arrays import (
    Array,
    log_ndtr,
    log_softmax,
    logsumexp,
    namespace,
    safe_scale,
)
from moment_calculus.values.gaussian import Gaussian

LOGISTIC_VARIANCE = math.pi**2 / 3  # of the standard logistic distribution


class Shares(Pairs):
    """A rule for the mean probability of every class; its law is that of the pairs."""

    def probabilities(self, logits: Gaussian) -> tuple[Array, Array]:
        """Return mean and variance of every probability, the variance by pairs."""
        shares = namespace(logits.mean).exp(log_softmax(self.log_shares(logits)))
        return shares, super().probabilities(logits)[1]

    @abstractmethod
    def log_shares(self, logits: Gaussian) -> Array:
        """Return logarithms of the mean probabilities but for a common number."""


class Logistic(Shares):
    """1 / Σ_k exp((m_k − m_y) / √(D_ky / σ² + 1)), D_ky = Var(f_k − f_y), σ² = π² / 3.

    Source: Shekhovtsov et al. 2018, appendix C.7, with correlated logits.
    """

    name = "logistic"

    def log_shares(self, logits: Gaussian) -> Array:
        """Return minus the logarithm of the sum."""
        differences, variance = _differences(logits)
        return -logsumexp(differences / safe_scale(variance / LOGISTIC_VARIANCE + 1))


class Normal(Shares):
    """Π_{k≠y} Φ((m_y − m_k) / √(D_ky + σ²)), as if differences were independent.

    Source: Shekhovtsov et al. 2018, appendix C.7, with correlated logits.
    """

    name = "normal"

    def log_shares(self, logits: Gaussian) -> Array:
        """Return the sum of the logarithms."""
        differences, variance = _differences(logits)
        logs = log_ndtr(-differences / safe_scale(variance + LOGISTIC_VARIANCE))
        # log Φ(0) of the class itself is the same in every class
        return namespace(logs).sum(logs, axis=-1)


class Simplified(Shares):
    """softmax(m_k / √(v_k / σ² + 1)) from the variances alone; a common shift changes it.

    Source: Shekhovtsov et al. 2018, appendix C.7.
    """

    name = "simplified"

    def log_shares(self, logits: Gaussian) -> Array:
        """Return the scaled means."""
        return logits.mean / safe_scale(logits.variance / LOGISTIC_VARIANCE + 1)


class Taylor(Shares):
    """p_y (1 + ½ (C_yy − 2 (C p)_y + 2 pᵀ C p − Σ p_k C_kk)), p = softmax(m), or zero below it.

    Source: Haussmann et al. 2019, appendix B.2: the expansion to second order.
    """

    name = "taylor"

    def log_shares(self, logits: Gaussian) -> Array:
        """Return the logarithm of the expansion, of which the part below zero is cut off."""
        xp, covariance = namespace(logits.mean), logits.joint_covariance()
        logs = log_softmax(logits.mean)
        shares = xp.exp(logs)
        mixed = (covariance @ shares[..., None])[..., 0]
        of_all = xp.sum(shares * (2 * mixed - logits.variance), axis=-1, keepdims=True)
        factor = 1 + 0.5 * (logits.variance - 2 * mixed + of_all)
        tiny = float(xp.finfo(factor.dtype).smallest_normal)
        return logs + xp.log(xp.clip(factor, min=tiny))


class Expanded(Taylor):
    """The expansions of E lse(f) and of E softmax(f) to second order.

    Source: Haussmann et al. 2019, appendix B.2.
    """

    name = "vbp"

    def log_probs(self, logits: Gaussian) -> Array:
        """Return the expansion of E[log p]; training finds logits where it is wrong."""
        return _OfBook().log_probs(logits)


class _OfBook(Delta):
    title = "rules='vbp'"


def _differences(logits: Gaussian) -> tuple[Array, Array]:
    """Return means and variances of f_k − f_y, [..., y, k]."""
    covariance, mean, variance = logits.joint_covariance(), logits.mean, logits.variance
    spread = variance[..., None, :] + variance[..., :, None] - 2 * covariance
    differences = mean[..., None, :] - mean[..., :, None]
    return differences, namespace(spread).clip(spread, min=0.0)
