"""Log-densities of guide and model at draws of all latent sites, each drawn once for all rows."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.util import scale_and_mask
from pyro.poutine import Trace
from pyro.poutine.util import site_is_subsample

from guides.families.masked_wording import no_density
from moment_calculus.hosts.wording import not_reparameterised, point_without_density
from moment_calculus.objectives.data import DataPlates
from pyro_moments.objectives.particles import Consume, Program, Vectorised
from pyro_moments.particles.noise import vectorised
from pyro_moments.sites.drawn import SharedSubsamples, unwatched
from pyro_moments.sites.masked import dropped_weight
from pyro_moments.sites.messenger import model_site
from pyro_moments.sites.observed import is_sample, plates_of
from pyro_moments.sites.posteriors import without_wrappers
from pyro_moments.sites.traces import run


class AtDraws(Vectorised):
    """Runs programs with latent sites that the host draws, and refuses those without a density."""

    def __init__(self) -> None:
        super().__init__(is_mean=False)

    def _run(self, program: Program, consume: Consume, count: int, together: frozenset[str]) -> Any:
        def particle(seed: int) -> Any:
            return consume(*run(_WithDensity(seed), *program[:4], unwatched))

        return vectorised(particle, count)


class _WithDensity(SharedSubsamples):
    """Refuses latent sites whose density or gradient is not known."""

    def _pyro_sample(self, msg: Any) -> None:
        super()._pyro_sample(msg)
        if msg["is_observed"] or msg["value"] is not None or site_is_subsample(msg):
            return
        name, fn = model_site(msg), msg["fn"]
        if (dropped := dropped_weight(fn)) is not None:
            raise no_density(dropped.design.site)
        inner = without_wrappers(fn)
        if isinstance(inner, dist.Delta):
            _check_drawn(name, inner)
        elif not fn.has_rsample:
            raise not_reparameterised(name, inner, host="Pyro")


def _check_drawn(name: str, fn: dist.Delta) -> None:
    """Refuse a point, but for a function of what is drawn, which differs between particles."""
    if not torch._C._functorch.is_batchedtensor(fn.v):
        raise point_without_density(name)


def log_ratio(model: Trace, guide: Trace, plates: DataPlates) -> torch.Tensor:
    """log p − log q of all sites, each datum's share of it: [data plates].

    Args:
        model: its trace.
        guide: likewise.
        plates: of the data.
    """
    ours, theirs = (_shares(trace, plates) for trace in (model, guide))
    return ours - theirs


def _shares(trace: Trace, plates: DataPlates) -> torch.Tensor:
    sites = [site for site in trace.nodes.values() if is_sample(site)]
    shares = (plates.share(_log_prob(site), site["scale"], plates_of(site)) for site in sites)
    return sum(shares, start=torch.zeros(()))


def _log_prob(site: Any) -> torch.Tensor:
    return scale_and_mask(site["fn"].log_prob(site["value"]), 1.0, site["mask"])
