"""Define the Normal prior whose common variance is chosen by empirical Bayes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from pyro.distributions import TorchDistribution, constraints
from torch.distributions import Independent, Normal, register_kl

from moment_calculus.likelihoods.divergences import (
    empirical_bayes_log_prior,
    gaussian_entropy,
    student_t_log_prob,
)


class EmpiricalBayesNormal(TorchDistribution):
    """Zero-mean Normal prior of one set of weights, with an inverse-Gamma prior on its variance.

    The analytic ELBO puts the variance λ* that is optimal for the current posterior into
    the KL divergence (type-II maximum a posteriori). Everything else, NUTS and prior
    samples included, sees the exact marginal: a multivariate Student-t with 2α degrees of
    freedom and squared scale β/α. One instance is one set: give each weight matrix and
    each bias vector its own.

    It holds no tensor, so samples are made on torch's default device, in its default
    dtype.

    Args:
        shape: shape of the set of weights, which is the event shape.
        alpha: shape of the inverse-Gamma hyperprior, positive.
        beta: its scale, positive.
        batch_shape: shape of the batch of independent sets.
        validate_args: whether observations are validated; by default as Pyro is set.

    Raises:
        ValueError: if ``alpha`` or ``beta`` is not positive.

    Source: Wu et al. 2019, eqs. 11-13; α = 1, β = 10 as in its experiments.

    Example:
        >>> EmpiricalBayesNormal([50, 13]).event_shape
        torch.Size([50, 13])
    """

    arg_constraints: dict = {}  # noqa: RUF012 (torch's own convention)
    has_rsample = True

    def __init__(
        self,
        shape: Sequence[int] = (),
        alpha: float = 1.0,
        beta: float = 10.0,
        *,
        batch_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        if not (alpha > 0 and beta > 0):
            raise ValueError(f"alpha={alpha} and beta={beta} must both be positive")
        self.alpha, self.beta = float(alpha), float(beta)
        super().__init__(torch.Size(batch_shape), torch.Size(shape), validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """Return all real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def mean(self) -> torch.Tensor:
        """Return zero, which for α ≤ ½ is only the median."""
        return torch.zeros(self.batch_shape + self.event_shape, device=torch.get_default_device())

    @property
    def variance(self) -> torch.Tensor:
        """Return β/(α − 1), infinite for α ≤ 1."""
        value = self.beta / (self.alpha - 1) if self.alpha > 1 else math.inf
        return torch.full(
            self.batch_shape + self.event_shape, value, device=torch.get_default_device()
        )

    def expand(self, batch_shape: Sequence[int], _instance=None) -> EmpiricalBayesNormal:
        """Return independent sets, one for each element of the batch shape."""
        return EmpiricalBayesNormal(
            self.event_shape, self.alpha, self.beta, batch_shape=batch_shape, validate_args=False
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> torch.Tensor:
        """Draw a variance for every set, then its weights."""
        lead = torch.Size(sample_shape) + self.batch_shape
        precision = torch.distributions.Gamma(self.alpha, self.beta).sample(lead)
        scale = precision.rsqrt().reshape(lead + (1,) * self.event_dim)
        return scale * torch.randn(lead + self.event_shape, device=torch.get_default_device())

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Return the log density of the Student-t marginal, of the batch shape.

        Args:
            value: weights, [..., *shape].
        """
        if self._validate_args:
            self._validate_sample(value)
        axes = tuple(range(-self.event_dim, 0))
        squared_norm = (value * value).sum(axes) if axes else value * value
        count = self.event_shape.numel()
        return student_t_log_prob(squared_norm, count, self.alpha, self.beta, math.lgamma)

    def expected_log_prob(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Return E_q[log N(w; 0, λ*)] for independent Gaussian weights, of the batch shape.

        Args:
            mean: posterior means, [..., *shape].
            variance: posterior variances, [..., *shape].
        """
        axes = tuple(range(-self.event_dim, 0))
        return empirical_bayes_log_prior(mean, variance, self.alpha, self.beta, axes)


@register_kl(Independent, EmpiricalBayesNormal)
def _kl_independent_empirical_bayes(q: Any, p: EmpiricalBayesNormal) -> torch.Tensor:
    """Return the KL divergence with λ* for the prior variance, for Pyro's own ELBOs."""
    normal = q.base_dist
    if not isinstance(normal, Normal) or q.event_dim != p.event_dim:
        raise NotImplementedError
    entropy = gaussian_entropy(normal.variance).sum(tuple(range(-q.event_dim, 0)))
    return -entropy - p.expected_log_prob(normal.mean, normal.variance)
