"""The packed latent vector of NumPyro's automatic guides, taken apart into one value per site."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import jax
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import biject_to
from numpyro.distributions.util import sum_rightmost
from numpyro.infer.autoguide import (
    AutoContinuous,
    AutoDiagonalNormal,
    AutoGuideList,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
)

from moment_calculus.hosts.wording import MEAN_FIELD_GUIDES
from moment_calculus.refusals.errors import UnsupportedMoments

Draw = Callable[[str, dist.Distribution], jax.Array]
_GAUSSIAN = (AutoLaplaceApproximation, AutoLowRankMultivariateNormal, AutoMultivariateNormal)


class LatentVectors:
    """The latent vectors of a guide.

    The sites of ``AutoDiagonalNormal`` are independent: each gets a value of its own, and can be
    drawn by itself. Vectors of other guides are Gaussian, or drawn, as a whole.

    Args:
        guide: the guide, possibly inside NumPyro's handlers.
        sample_sites: names of the sites that are drawn as usual.

    Raises:
        UnsupportedMoments: if a guide that is not Gaussian is not drawn, or if sites of a vector
            with dependent components are drawn in part.
    """

    def __init__(self, guide: Any, sample_sites: Collection[str]) -> None:
        self.sample_sites = frozenset(sample_sites)
        self.guides = [part for part in _parts(guide) if isinstance(part, AutoContinuous)]
        self.values: dict[str, dist.Delta] = {}

    def is_drawn(self, name: str) -> bool:
        """Whether an auxiliary site of the guide is drawn as a whole.

        Args:
            name: the site.
        """
        guide = self._guide_of(name)
        if guide is None or _takes_apart(guide):
            return False
        sites = guide._init_locs.keys()
        kind = type(guide).__name__
        if (drawn := self.sample_sites & sites) and drawn < sites:
            raise UnsupportedMoments(
                f"the sites of {kind} are dependent and cannot be drawn in part "
                f"({', '.join(sorted(drawn))})",
                sites=sites,
                remedy=f"draw all of them: sample_sites={sorted(sites)}, or {MEAN_FIELD_GUIDES}",
            )
        if not drawn and not isinstance(guide, _GAUSSIAN):
            raise UnsupportedMoments(
                f"{kind} is not Gaussian: its sites have no analytic moments",
                sites=sites,
                remedy=f"{MEAN_FIELD_GUIDES}, or draw its sites: sample_sites={sorted(sites)}",
            )
        return bool(drawn)

    def take_apart(self, name: str, fn: Any, latent: Draw, draw: Draw) -> None:
        """Note a value for each site of a latent vector with independent components.

        Args:
            name: the latent vector's site.
            fn: its distribution.
            latent: gives a site's value on the unconstrained space from name and distribution.
            draw: the same for sites that are drawn.
        """
        guide = self._guide_of(name)
        if guide is None or not _takes_apart(guide):
            return
        normal = fn if isinstance(fn, dist.Normal) else fn.base_dist
        locs, scales = (guide._unpack_latent(part) for part in (normal.loc, normal.scale))
        for site, loc in locs.items():
            kind = draw if site in self.sample_sites else latent
            value = kind(site, dist.Normal(loc, scales[site]))
            self.values[site] = _constrained(guide.prototype_trace[site]["fn"], value)

    def _guide_of(self, name: str) -> Any:
        for guide in self.guides:
            if name in {f"{start}{guide.prefix}_{end}" for start, end in _AUXILIARY}:
                return guide
        return None


def drawn_density(site: dict) -> jax.Array | None:
    """Log density of a latent vector that was drawn from a flow, at the draw itself.

    Some flows have no inverse that would give it for any other point.

    Args:
        site: of the guide's trace.

    Returns:
        A number; None for other sites.
    """
    auxiliary = (site["infer"] or {}).get("is_auxiliary")
    if not (auxiliary and site["name"].endswith("_latent") and site.get("intermediates")):
        return None
    return site["fn"].log_prob(site["value"], intermediates=site["intermediates"])


_AUXILIARY = [("_", "latent"), ("", "z_0"), ("", "momentum")]  # of all, and of AutoDAIS


def _parts(guide: Any) -> Iterator[Any]:
    """A guide without NumPyro's handlers, or what an AutoGuideList is made of."""
    while not isinstance(guide, AutoGuideList) and getattr(guide, "fn", None) is not None:
        guide = guide.fn
    if isinstance(guide, AutoGuideList):
        for part in guide:
            yield from _parts(part)
    else:
        yield guide


def _takes_apart(guide: Any) -> bool:
    return isinstance(guide, AutoDiagonalNormal)


def _constrained(prior: Any, free: jax.Array) -> dist.Delta:
    """The site that AutoContinuous samples for a part of its vector."""
    transform = biject_to(prior.support)
    value = transform(free)
    log_density = -transform.log_abs_det_jacobian(free, value)
    summed = np.ndim(log_density) - np.ndim(value) + prior.event_dim
    log_density = sum_rightmost(log_density, summed)
    return dist.Delta(value, log_density=log_density, event_dim=prior.event_dim)
