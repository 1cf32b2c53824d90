"""Define the sparse priors: the horseshoe, its hierarchy for NUTS, and the log-uniform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution, constraints
from pyro.infer.reparam.reparam import Reparam
from torch.distributions import Normal, register_kl

from moment_calculus.likelihoods.divergences import gaussian_entropy
from moment_guides.families import sparse_priors
from moment_guides.families.sparse_priors import improper_prior, observed_horseshoe


class Horseshoe(TorchDistribution):
    """Horseshoe prior of independent weights, with its local scales integrated out.

    w = scale · λ · z with a half-Cauchy λ and a standard normal z, one of each for every
    weight. Its density has a pole at zero and the tails of a Cauchy: small weights are
    shrunk to nothing, large ones hardly. The analytic ELBO takes the divergence of a
    Gaussian from the marginal density, to 1e-8 nat in float64 and 1e-5 nat in float32 for
    weights up to 1e6 scales. ``log_prob`` is the marginal density, held within 1e-10
    scales of its pole. NUTS mixes better on the hierarchy: see :class:`HorseshoeReparam`.

    Args:
        scale: global scale τ, positive, a number or one for each weight. A guess of p₀ real
            weights among D, n data of noise σ, and inputs of variance 1 leads to
            τ = p₀/(D − p₀) · σ/√n (Piironen and Vehtari 2017).
        validate_args: whether observations are validated; by default as Pyro is set.

    Raises:
        ValueError: if ``scale`` is not positive.

    Source: Carvalho, Polson and Scott 2010.

    Example:
        >>> Horseshoe(0.1).expand([20]).to_event(1).event_shape
        torch.Size([20])
    """

    arg_constraints = {"scale": constraints.positive}  # noqa: RUF012 (torch's own convention)
    support = constraints.real
    has_rsample = True
    has_pole = True

    def __init__(self, scale: Any = 1.0, *, validate_args: bool | None = None) -> None:
        if isinstance(scale, int | float) and not scale > 0:
            raise ValueError(f"scale={scale} must be positive")
        if isinstance(scale, int | float):
            scale = torch.tensor(float(scale), device=torch.get_default_device())
        self.scale = scale
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        """Return zero, which is only the median."""
        return torch.zeros_like(self.scale)

    @property
    def variance(self) -> torch.Tensor:
        """Return infinity."""
        return torch.full_like(self.scale, torch.inf)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Horseshoe:
        """Return independent weights, one for each element of the batch shape."""
        expanded = Horseshoe(self.scale.expand(torch.Size(batch_shape)), validate_args=False)
        expanded._validate_args = self._validate_args
        return expanded

    def rsample(self, sample_shape: Sequence[int] = ()) -> torch.Tensor:
        """Draw a local scale for every weight, then the weight."""
        shape = torch.Size(sample_shape) + self.batch_shape
        local = torch.empty(shape, dtype=self.scale.dtype, device=self.scale.device).cauchy_()
        return self.scale * local.abs() * torch.randn_like(local)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Return the log density of the weights, their scales integrated out.

        Args:
            value: weights, [..., *batch_shape].
        """
        if self._validate_args:
            self._validate_sample(value)
        return sparse_priors.horseshoe_log_prob(value, self.scale)

    def expected_log_prob(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Return E_q[log p(w)] of Gaussian weights, [..., *batch_shape].

        Args:
            mean: posterior means, [..., *batch_shape].
            variance: posterior variances, [..., *batch_shape].
        """
        return sparse_priors.horseshoe(mean, variance, self.scale)


class HorseshoeReparam(Reparam):
    """Sample a :class:`Horseshoe` site as its hierarchy, w = scale · λ · z.

    The site becomes a function of ``{name}_local``, the half-Cauchy λ, and
    ``{name}_standard``, the normal z. The prior of the site is the same.

    Example:
        >>> from pyro import poutine
        >>> def model():
        ...     return pyro.sample("w", Horseshoe(0.1).expand([20]).to_event(1))
        >>> hierarchy = poutine.reparam(model, config={"w": HorseshoeReparam()})
        >>> sorted(poutine.trace(hierarchy).get_trace().stochastic_nodes)
        ['w_local', 'w_standard']
    """

    def apply(self, msg: Any) -> Any:
        """Return the site as a function of its scale and its standard weight.

        Args:
            msg: the site, as Pyro passes it.

        Returns:
            The site with a Delta distribution, as Pyro takes it.

        Raises:
            TypeError: if the site is no Horseshoe.
            UnsupportedMoments: if it is observed.
        """
        name, value = msg["name"], msg["value"]
        prior, event_dim = self._unwrap(msg["fn"])
        if not isinstance(prior, Horseshoe):
            raise TypeError(f"HorseshoeReparam: site '{name}' is a {type(prior).__name__}")
        if msg["is_observed"]:
            raise observed_horseshoe(name)
        scale = prior.scale
        local = pyro.sample(
            f"{name}_local", self._wrap(dist.HalfCauchy(torch.ones_like(scale)), event_dim)
        )
        standard = pyro.sample(
            f"{name}_standard",
            self._wrap(dist.Normal(torch.zeros_like(scale), 1.0), event_dim),
            obs=None if value is None else value / (scale * local),
            infer={"is_observed": False},
        )
        value = scale * local * standard
        new_fn = dist.Delta(value, event_dim=event_dim).mask(False)
        return {"fn": new_fn, "value": value, "is_observed": True}


class LogUniform(TorchDistribution):
    """Log-uniform prior of independent weights, p(w) = c/|w|: it has no scale to choose.

    The analytic ELBO takes the divergence of a Gaussian N(m, v) from it in closed form, up
    to 1e-10 nat in float64 and 1e-5 nat in float32. It depends on m²/v alone, grows as
    log |m|/√v, and is zero at m = 0, which chooses the constant c. Weights that the data do
    not need end there, and can be left out: ``pruning_report``. The prior is improper, and
    with it the posterior of the weights: the divergence makes a good penalty, not a bound
    of the evidence, and everything that needs draws or a posterior refuses it: prior
    samples, NUTS, ``Trace_ELBO``. :class:`Horseshoe` is a proper prior of its kind.

    It holds no tensor: dtype and device are those of the weights.

    Args:
        validate_args: ignored: the log density is refused.

    Source: Kingma, Salimans and Welling 2015; Molchanov, Ashukha and Vetrov 2017, whose
        eq. 14 is a fit to this divergence with errors up to 0.0094 nat.

    Example:
        >>> LogUniform().expand([50, 13]).to_event(2).event_shape
        torch.Size([50, 13])
    """

    arg_constraints: dict = {}  # noqa: RUF012 (torch's own convention)
    support = constraints.real
    has_pole = is_improper = True

    def __init__(
        self, *, batch_shape: Sequence[int] = (), validate_args: bool | None = None
    ) -> None:
        super().__init__(torch.Size(batch_shape), validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> LogUniform:
        """Return independent weights, one for each element of the batch shape."""
        return LogUniform(batch_shape=batch_shape)

    def sample(self, sample_shape: Sequence[int] = ()) -> torch.Tensor:
        """Raise NotImplementedError: the prior is improper."""
        raise NotImplementedError(str(improper_prior("draws")))

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Raise UnsupportedMoments: the prior is improper."""
        raise improper_prior("log density")

    def expected_log_prob(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Return E_q[log p(w)] of Gaussian weights, [..., *batch_shape].

        Args:
            mean: posterior means, [..., *batch_shape].
            variance: posterior variances, [..., *batch_shape].
        """
        return sparse_priors.log_uniform(mean, variance)


@register_kl(Normal, Horseshoe)
@register_kl(Normal, LogUniform)
def _kl_normal_sparse(q: Normal, p: Horseshoe | LogUniform) -> torch.Tensor:
    """Return the KL divergence of each weight, for Pyro's own ELBOs."""
    return -gaussian_entropy(q.variance) - p.expected_log_prob(q.mean, q.variance)
