"""Dropout as a posterior: q(W) = M diag(z), a mask z of the inputs for every datum.

Noise is inverted, z ~ Bernoulli(k)/k with k = 1 − p for the probability p to drop, so that M is the
mean of q; or it is Gaussian with the same mean and variance, z ~ N(1, (1 − k)/k); or every weight
has a Bernoulli mask of its own (DropConnect).

Source: Gal and Ghahramani 2016; Li and Gal 2017, sections 2.3 and 3; Wan et al. 2013 (DropConnect);
Gal, Hron and Kendall 2017 (learnt probabilities).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from guides.families.masked_wording import not_contracted, nothing_to_mask
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import check_choice
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.dropout.noise import variance_ratio

NOISES = ("bernoulli", "gaussian", "dropconnect")
OTHERS = ("point", "mean_field")
TEMPERATURE = 0.1

Rate = float | Mapping[str, float]


class Options:
    """What users choose of a guide by dropout.

    Args:
        p: probability to drop an input, of all masked sites, or by site.
        noise: one of :data:`NOISES`.
        others: one of :data:`OTHERS`: what sites are that are not masked.
        learn_p: whether the probabilities are parameters.
        temperature: of the relaxed masks that are drawn where the probabilities are learnt.

    Raises:
        ValueError: if a name is unknown, a probability is not in [0, 1), or those that are learnt
            are not in (0, 1) or of Gaussian noise; if the temperature is not positive.
    """

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
        """What belongs to the posterior and is no parameter, for files."""
        settings: dict[str, Any] = {"noise": self.noise, "others": self.others}
        if self.learn_p:
            return {**settings, "learn_p": True, "temperature": float(self.temperature)}
        p = self.p
        named = {site: float(p[site]) for site in p} if isinstance(p, Mapping) else float(p)
        return {**settings, "learn_p": False, "p": named}

    def design(self, site: str, event_dim: int, weights: Weights) -> Design:
        """What is fixed of a masked site.

        Args:
            site: its name.
            event_dim: its number of event axes.
            weights: what is known of the model.
        """
        warm = self.temperature if self.learn_p else None
        learnt = site in weights.learnt_priors
        return Design(site, weights.axes[site], event_dim, self.noise, warm, learnt)

    def rates(self, contracted: Iterable[str], latent: Iterable[str]) -> dict[str, float]:
        """The probability of every site that is masked.

        Args:
            contracted: the latent sites that the model contracts with an input.
            latent: all of its latent sites.

        Raises:
            UnsupportedMoments: if there is none to mask, or a site that users name is none.
        """
        contracted, latent = list(contracted), list(latent)
        if not isinstance(self.p, Mapping):
            if not contracted:
                raise nothing_to_mask(latent)
            return dict.fromkeys(contracted, self.p)
        for name in self.p:
            if name not in contracted:
                raise not_contracted(name, contracted, latent)
        return dict(self.p)


@dataclass(frozen=True)
class Design:
    """What is fixed of a masked site.

    Args:
        site: its name.
        axis: of its inputs, negative.
        event_dim: number of trailing axes of the site that make up one draw.
        noise: one of :data:`NOISES`.
        temperature: of relaxed masks, which are differentiable in p; None: masks are discrete.
        learnt_prior: whether the scale of its prior depends on parameters or on other sites, so
            that the constant of the prior's density is none.
    """

    site: str
    axis: int
    event_dim: int
    noise: str = "bernoulli"
    temperature: float | None = None
    learnt_prior: bool = False


class Weights(NamedTuple):
    """What a run of a model tells of the weights among its latent sites.

    Args:
        axes: for each site that a linear map contracts, the axis where it first does so, negative.
        learnt_priors: sites whose priors have scales that are not fixed.
    """

    axes: dict[str, int]
    learnt_priors: frozenset[str]


def prior_scale(fn: Any) -> Any:
    """The scale of the distribution inside others; None if it has none.

    Args:
        fn: a host's distribution.
    """
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return getattr(fn, "scale", None)


def bernoulli(uniform: Array, p: Any) -> Array:
    """Inverted masks, 1/k with probability k = 1 − p, else 0.

    Args:
        uniform: draws from the unit interval.
        p: probability to drop, a number or an array that broadcasts.
    """
    xp = namespace(uniform)
    kept = xp.ones_like(uniform) / (1 - p)
    return xp.where(uniform >= p, kept, xp.zeros_like(kept))


def relaxed(uniform: Array, p: Array, temperature: float) -> Array:
    """Masks that are differentiable in p, near 0 or 1/k (the concrete distribution).

    Args:
        uniform: draws from the open unit interval.
        p: probability to drop, an array that broadcasts.
        temperature: how far from 0 and 1/k they are.

    Source: Maddison, Mnih and Teh 2017; Gal, Hron and Kendall 2017, eq. 5.
    """
    xp = namespace(uniform)
    log_odds = xp.log(uniform) - xp.log1p(-uniform) + xp.log1p(-p) - xp.log(p)
    return 1 / (1 + xp.exp(-xp.clip(log_odds / temperature, min=-80.0, max=80.0))) / (1 - p)


def gaussian(normal: Array, p: Any) -> Array:
    """Gaussian noise of mean one and variance p/(1 − p).

    Args:
        normal: standard normal draws.
        p: probability to drop, of which the noise has mean and variance.
    """
    return 1 + variance_ratio(p) ** 0.5 * normal


def mask_shape(shape: tuple[int, ...], axis: int, noise: str) -> tuple[int, ...]:
    """Shape of one mask of a weight, which broadcasts with it.

    Args:
        shape: of the weight.
        axis: of its inputs, negative.
        noise: one of :data:`NOISES`.
    """
    if noise == "dropconnect":
        return shape
    return tuple(n if place - len(shape) == axis else 1 for place, n in enumerate(shape))


def squared_deviation(loc: Array, p: Any, centre: Any) -> Array:
    """E[(M z − μ)²] of every weight.

    Args:
        loc: M.
        p: probability to drop.
        centre: μ, broadcastable.
    """
    deviation = loc - centre
    return deviation * deviation + variance_ratio(p) * (loc * loc)


def normal_cost(loc: Array, p: Any, prior_mean: Any, prior_variance: Any) -> Array:
    """E[(M z − μ)²]/(2λ) of every weight: ‖M‖²/(2kλ) in all for a prior of mean zero.

    It is the KL divergence from a Normal prior but for a constant: a discrete q has none.

    Args:
        loc: M.
        p: probability to drop.
        prior_mean: μ, broadcastable.
        prior_variance: λ, broadcastable.

    Source: Gal and Ghahramani 2016; Li and Gal 2017, section 3.
    """
    return squared_deviation(loc, p, prior_mean) / (2 * prior_variance)


def two_point(loc: Array, p: Any) -> tuple[tuple[Any, Array], tuple[Any, Array]]:
    """The values of each weight under Bernoulli noise, with their probabilities.

    Args:
        loc: M.
        p: probability to drop.
    """
    return (p, 0 * loc), (1 - p, loc / (1 - p))


def mask_entropy(p: Array) -> Array:
    """Entropy H(p) of one mask in nats.

    Args:
        p: probability to drop, an array with elements in (0, 1).
    """
    xp = namespace(p)
    return -p * xp.log(p) - (1 - p) * xp.log1p(-p)


def masks_each(shape: tuple[int, ...], axis: int, noise: str) -> float:
    """How many masks there are to one weight, so that entropies go by weights.

    Args:
        shape: of the weights.
        axis: of their inputs, negative.
        noise: one of :data:`NOISES`.
    """
    if noise == "dropconnect":
        return 1.0
    count = 1
    for size in shape:
        count *= size
    return shape[axis] / count
