"""Implement dropout as a posterior: q(W) = M diag(z), with a mask z of the inputs for every datum.

Bernoulli masks are inverted, z ~ Bernoulli(k)/k with k = 1 − p, so that M is the mean of
q; Gaussian noise has the same mean and variance; under DropConnect every weight has its
own mask. Source: Gal and Ghahramani 2016; Li and Gal 2017, sections 2.3 and 3; Wan et al.
2013 (DropConnect); Gal, Hron and Kendall 2017 (learnt probabilities).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, namespace, ndtri
from moment_calculus.operations.dropout.masked_weight import MaskedWeight, SiteMask, masked_weight
from moment_calculus.operations.dropout.noise import variance_ratio
from moment_calculus.values.propagation import Propagation, check_choice

NOISES = ("bernoulli", "gaussian", "dropconnect")
OTHERS = ("point", "mean_field")
TEMPERATURE = 0.1

Rate = float | Mapping[str, float]


class DropoutOptions:
    """The options of a dropout guide; raises ValueError if one of them is invalid."""

    def __init__(self, p: Rate, noise: str, others: str, learn_p: bool, temperature: float) -> None:
        check_choice("noise", noise, NOISES)
        check_choice("others", others, OTHERS)
        rates = p.values() if isinstance(p, Mapping) else [p]
        low = "(0" if learn_p else "[0"
        for rate in rates:
            if not (0 < rate < 1 or (rate == 0 and not learn_p)):
                raise ValueError(f"p={rate} is no probability to drop: it has to be in {low}, 1)")
        if learn_p and noise == "gaussian":
            raise ValueError(
                "learn_p=True needs the entropy of the masks: use noise='bernoulli' or "
                "'dropconnect'"
            )
        if not temperature > 0:
            raise ValueError(f"temperature={temperature} must be positive")
        self.p, self.noise, self.others = p, noise, others
        self.learn_p, self.temperature = learn_p, temperature

    def fixed(self) -> dict[str, Any]:
        """Return the settings that are saved beside the parameters."""
        settings: dict[str, Any] = {"noise": self.noise, "others": self.others}
        if self.learn_p:
            return {**settings, "learn_p": True, "temperature": float(self.temperature)}
        p = self.p
        named = {site: float(p[site]) for site in p} if isinstance(p, Mapping) else float(p)
        return {**settings, "learn_p": False, "p": named}

    def design(self, site: str, event_dim: int, weights: WeightSites) -> MaskedSite:
        """Return the fixed settings of one masked site."""
        temperature = self.temperature if self.learn_p else None
        learnt = site in weights.learnt_priors
        return MaskedSite(site, weights.axes[site], event_dim, self.noise, temperature, learnt)

    def rates(self, contracted: Iterable[str], latent: Iterable[str]) -> dict[str, float]:
        """Return the rate of each masked site; raise if ``p`` does not fit."""
        contracted, latent = list(contracted), list(latent)
        if not isinstance(self.p, Mapping):
            if not contracted:
                raise nothing_to_mask_error(latent)
            return dict.fromkeys(contracted, self.p)
        for name in self.p:
            if name not in contracted:
                raise not_contracted_error(name, contracted, latent)
        return dict(self.p)


@dataclass(frozen=True)
class MaskedSite:
    """The fixed settings of one masked site."""

    site: str
    axis: int  # of its inputs, negative
    event_dim: int
    noise: str = "bernoulli"  # one of NOISES
    temperature: float | None = None  # of relaxed masks; None: masks are discrete
    learnt_prior: bool = False  # whether the prior's scale is random or has parameters


class WeightSites(NamedTuple):
    """What one run of a model shows about the weights among its latent sites."""

    axes: dict[str, int]  # by site, the axis (negative) along which a linear map contracts it first
    learnt_priors: frozenset[str]  # sites whose prior scale is random or has parameters


def prior_scale(fn: Any) -> Any:
    """Return the scale of the innermost base distribution; None if it has none."""
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return getattr(fn, "scale", None)


def bernoulli(uniform: Array, p: Any) -> Array:
    """Return masks that are 1/(1 − p) where the uniform draw is at least p, else 0."""
    xp = namespace(uniform)
    scaled_mask = xp.ones_like(uniform) / (1 - p)
    return xp.where(uniform >= p, scaled_mask, xp.zeros_like(scaled_mask))


def relaxed(uniform: Array, p: Array, temperature: float) -> Array:
    """Return masks near 0 or 1/(1 − p), differentiable in p (concrete distribution)."""
    # Maddison, Mnih and Teh 2017; Gal, Hron and Kendall 2017, eq. 5. The draws are not 0
    # or 1.
    xp = namespace(uniform)
    log_odds = xp.log(uniform) - xp.log1p(-uniform) + xp.log1p(-p) - xp.log(p)
    return 1 / (1 + xp.exp(-xp.clip(log_odds / temperature, min=-80.0, max=80.0))) / (1 - p)


def gaussian(normal: Array, p: Any) -> Array:
    """Return Gaussian noise of mean 1 and variance p/(1 − p) from normal draws."""
    return 1 + variance_ratio(p) ** 0.5 * normal


def mask_shape(shape: tuple[int, ...], axis: int, noise: str) -> tuple[int, ...]:
    """Return the shape of one mask, which broadcasts with the weight; axis < 0."""
    if noise == "dropconnect":
        return shape
    return tuple(n if dimension - len(shape) == axis else 1 for dimension, n in enumerate(shape))


def normal_divergence(loc: Array, p: Any, prior_mean: Any, prior_variance: Any) -> Array:
    """Return E[(M z − μ)²]/(2λ) of every weight, for the prior mean μ and variance λ."""
    # With a discrete q the KL divergence from the Normal prior is this but for a constant
    # (Gal and Ghahramani 2016; Li and Gal 2017, section 3).
    deviation = loc - prior_mean
    return (deviation * deviation + variance_ratio(p) * (loc * loc)) / (2 * prior_variance)


def mask_values(loc: Array, p: Any) -> tuple[tuple[Any, Array], tuple[Any, Array]]:
    """Return the pairs (probability, value) of each weight under Bernoulli masks."""
    return (p, 0 * loc), (1 - p, loc / (1 - p))


def mask_entropy(p: Array) -> Array:
    """Return the entropy H(p) of one mask in nats, for an array p in (0, 1)."""
    xp = namespace(p)
    return -p * xp.log(p) - (1 - p) * xp.log1p(-p)


def masks_per_weight(shape: tuple[int, ...], axis: int, noise: str) -> float:
    """Return the number of masks per weight, to count their entropy by weights."""
    if noise == "dropconnect":
        return 1.0
    count = 1
    for size in shape:
        count *= size
    return shape[axis] / count


class DroppedWeightBase:
    """Mixin for M diag(z) with an inverted mask z over the inputs, for M = loc."""

    loc: Array
    p: Any  # probability to drop an input, a number or a scalar array
    design: MaskedSite

    @property
    def mean(self) -> Array:
        """Return M."""
        return self.loc

    @property
    def variance(self) -> Array:
        """Return M² p/(1 − p)."""
        return variance_ratio(self.p) * (self.loc * self.loc)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        """Return the shape of one mask, which broadcasts with the weight."""
        return mask_shape(tuple(self.loc.shape), self.design.axis, self.design.noise)

    def site_mask(self, name: str) -> SiteMask:
        """Return the noise of the site in one run of a program."""
        design = self.design
        per_weight, is_switch = design.noise == "dropconnect", design.noise == "bernoulli"
        return SiteMask(name, variance_ratio(self.p), design.axis, per_weight, is_switch)

    def value(self, name: str, propagation: Propagation) -> MaskedWeight:
        """Return the value of the site, before it is contracted with inputs."""
        return masked_weight(self.loc, self.site_mask(name), propagation)

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Raise UnsupportedMoments: the distribution has no density."""
        raise no_density(self.design.site)

    def icdf(self, value: Array) -> Array:
        """Return quantiles of each weight; probabilities broadcast with weights."""
        xp = namespace(value)
        if self.design.noise == "gaussian":
            return self.loc + variance_ratio(self.p) ** 0.5 * abs(self.loc) * ndtri(value)
        scaled = self.loc / (1 - self.p)
        below = xp.where(self.loc < 0, value <= 1 - self.p, value > self.p)
        return xp.where(below, scaled, xp.zeros_like(scaled))


def bounded_site_error(name: str) -> UnsupportedMoments:
    """Return the error for a site to be masked whose support is bounded."""
    return UnsupportedMoments(
        f"site '{name}' is to be masked by MCDropoutGuide, but its support is not all real numbers",
        sites=[name],
        remedy="mask sites with a prior on all real numbers: name them in MCDropoutGuide(p={...})",
    )


def masked_site_not_used(name: str) -> UnsupportedMoments:
    """Return the error for a masked site that no linear map contracts."""
    return UnsupportedMoments(
        f"the model does not contract the masked site '{name}' with an input: it has no mask",
        sites=[name],
        remedy="leave it unmasked: name the sites to mask in MCDropoutGuide(p={...})",
    )


def no_dropout_prior(name: str, prior: Any) -> UnsupportedMoments:
    """Return the error for a prior without an expected log density under dropout."""
    return UnsupportedMoments(
        f"the prior of the masked site '{name}' is a {type(prior).__name__}, whose elements are "
        "dependent: its expected log density under the masks is not known",
        sites=[name],
        remedy="use a prior with independent elements, or EmpiricalBayesNormal",
    )


def infinite_at_zero(name: str, prior: Any) -> UnsupportedMoments:
    """Return the error for a prior with a pole where the masks put a weight."""
    return UnsupportedMoments(
        f"the prior of the masked site '{name}' is a {type(prior).__name__}, whose density is "
        "infinite at zero, where the masks of MCDropoutGuide put a weight with a probability above "
        "zero",
        sites=[name],
        remedy="use DVIGuide, MCDropoutGuide(noise='gaussian'), or a prior without a pole such as "
        "Normal",
    )


def no_density(site: str) -> UnsupportedMoments:
    """Return the error for asking the density of a masked weight."""
    return UnsupportedMoments(
        f"the masked site '{site}' of MCDropoutGuide has no density: its masks are discrete, or "
        "shared by all weights of an input",
        sites=[site],
        remedy="use DeterministicELBO(), or BBAlphaELBO() with its default energy, which take the "
        "divergence in closed form but for a constant, in place of an objective by log densities",
    )


def nothing_to_mask_error(latent: list[str]) -> UnsupportedMoments:
    """Return the error for a model that contracts none of its latent sites."""
    return UnsupportedMoments(
        "MCDropoutGuide finds no site to mask: the model contracts none of its latent sites "
        f"({', '.join(latent) or 'none'}) with an input",
        sites=latent,
        remedy="write linear maps as such (F.linear, x @ w; not (x * w).sum(-1)), or use DVIGuide "
        "or the host's AutoDelta",
    )


def not_contracted_error(name: str, contracted: list[str], latent: list[str]) -> UnsupportedMoments:
    """Return the error for a site named in ``p`` that the model does not contract."""
    if name not in latent:
        cause = f"p names the site {name!r}, which the model does not have"
    else:
        cause = f"p names the site {name!r}, which the model contracts with no input"
    return UnsupportedMoments(
        f"MCDropoutGuide: {cause}; it contracts {', '.join(map(repr, contracted)) or 'none'}",
        sites=latent,
        remedy="name sites that are weights of linear maps",
    )
