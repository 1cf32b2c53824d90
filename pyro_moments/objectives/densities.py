"""Log-densities of guide and model at draws of all latent sites."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from pyro.ops.provenance import ProvenanceTensor, detach_provenance, get_provenance
from pyro.poutine import Trace
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from guides.families.dropout_texts import no_density
from moment_calculus.errors import not_reparameterised, point_without_density
from moment_calculus.objectives.data import DataPlates
from pyro_moments.objectives.particles import FromTraces, ParticleRunner, Program, ValidateOnce
from pyro_moments.particles.noise import VmapRunner
from pyro_moments.sites.drawn_traces import PyroDraws, run_unwatched
from pyro_moments.sites.messenger import model_site
from pyro_moments.sites.posteriors import dropout_posterior, without_wrappers
from pyro_moments.sites.traces import is_sample, plates_of, run_both


class PyroDrawRunner(ParticleRunner):
    """Runs programs with latent sites that have a density and that Pyro draws once for all rows."""

    def __init__(self) -> None:
        super().__init__(is_mean=False)
        self.validate = _ValidateDensity()

    def _run(
        self,
        program: Program,
        consume: FromTraces,
        count: int,
        shared_draws: frozenset[str],
        vmap_runner: VmapRunner,
    ) -> Any:
        def particle(seed: int) -> Any:
            return consume(*run_both(PyroDraws(seed), *program[:4], run_unwatched))

        return vmap_runner(particle, count)


class _ValidateDensity(ValidateOnce):
    """Raises UnsupportedMoments for guides whose density, or gradient of a draw, is unknown."""

    def validate(self, program: Program) -> None:
        super().validate(program)
        check_density(program, reparameterised=True)


def check_density(program: Program, *, reparameterised: bool) -> None:
    """Raise UnsupportedMoments for dropped weights, for points, and, if asked, without rsample."""
    with torch.no_grad(), poutine.block(), _DrawProvenance(reparameterised):
        program.guide(*program.args, **program.kwargs)


class _DrawProvenance(Messenger):
    """Tracks which values depend on draws: only a Delta at such a value has a density."""

    def __init__(self, reparameterised: bool) -> None:
        super().__init__()
        self.reparameterised = reparameterised

    def _pyro_sample(self, msg: Any) -> None:
        if _is_drawn(msg):
            _check(model_site(msg), msg["fn"], self.reparameterised)

    def _pyro_post_sample(self, msg: Any) -> None:
        if _is_drawn(msg):
            origins = get_provenance(msg["value"]) | {msg["name"]}
            msg["value"] = ProvenanceTensor(detach_provenance(msg["value"]), origins)


def _is_drawn(msg: Any) -> bool:
    return not msg["is_observed"] and not site_is_subsample(msg)


def _check(name: str, fn: Any, reparameterised: bool) -> None:
    if (dropped := dropout_posterior(fn)) is not None:
        raise no_density(dropped.design.site)
    inner = without_wrappers(fn)
    if isinstance(inner, dist.Delta):
        if not get_provenance(inner.v):  # a function of draws has their density
            raise point_without_density(name)
    elif reparameterised and not fn.has_rsample:
        raise not_reparameterised(name, inner, framework="Pyro", by_name=False)


def log_ratio(model: Trace, guide: Trace, plates: DataPlates) -> torch.Tensor:
    """Return log p − log q of all sites, each datum's share of it: [data plates]."""
    ours, theirs = (_shares(trace, plates) for trace in (model, guide))
    return ours - theirs


def _shares(trace: Trace, plates: DataPlates) -> torch.Tensor:
    sites = [site for site in trace.nodes.values() if is_sample(site)]
    shares = (
        plates.share_per_datum(_log_prob(site), site["scale"], plates_of(site)) for site in sites
    )
    return sum(shares, start=torch.zeros(()))


def _log_prob(site: Any) -> torch.Tensor:
    return scale_and_mask(site["fn"].log_prob(site["value"]), 1.0, site["mask"])
