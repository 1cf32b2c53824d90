"""Terms of observed sites in the ELBO: their expected log-likelihoods."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import MaskedDistribution
from pyro.infer.util import is_validation_enabled
from pyro.util import check_site_shape

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.hosts.wrappers import unwrapped
from moment_calculus.objectives.data import ObservedPlates, Plate, check_rows_are_data
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.failure_causes import refuse_infinite_data
from pyro_moments.likelihoods import evaluate
from pyro_moments.particles.undrawn import MaskedSite, Undrawn
from pyro_moments.sites.latent import scaled_sum
from pyro_moments.sites.transformed import WRAPPERS


def observed_term(name: str, site: Any) -> torch.Tensor:
    """Return the scaled E_q[log p] of an observed site; its log-density where sites are drawn."""
    if (drawn := site.get("log_prob")) is not None:
        return scaled_sum(drawn, site)
    masked = site["mask"] is not None or isinstance(site["fn"], MaskedDistribution)
    if masked and is_validation_enabled():
        refuse_infinite_data(name, site)  # the loss would be finite, its gradients not
    try:
        log_prob = evaluate(name, site["fn"], site["value"])
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None
    if is_validation_enabled():
        check_site_shape({**site, "log_prob": log_prob}, math.inf)  # type: ignore[arg-type]
    return scaled_sum(log_prob, site)


def is_observation(site: Any) -> bool:
    """Return whether a node of a trace is an observed site, and not a deterministic one."""
    return is_sample(site) and site["is_observed"]


def is_latent(site: Any) -> bool:
    """Return whether a node of a trace is a latent site."""
    return is_sample(site) and not site["is_observed"]


def is_sample(site: Any) -> bool:
    """Return whether a node of a trace is a site with a distribution, not a deterministic one."""
    return site["type"] == "sample" and not (site["infer"] or {}).get("_deterministic")


def check_masked_rows(sites: Mapping[str, Any], latent: Collection[str]) -> None:
    """Raise UnsupportedMoments for masks of rows that are no data."""
    samples = {name: site for name, site in sites.items() if site["type"] == "sample"}
    values = {name: site["value"] for name, site in samples.items() if name in latent}
    weights = {
        name: weight for name, value in values.items() if (weight := _masked(value)) is not None
    }
    if not weights:
        return
    data = {
        name: ObservedPlates(plates_of(site), tuple(site["value"].shape))
        for name, site in samples.items()
        if name not in latent and is_sample(site) and not _is_factor(site["fn"])
    }
    check_rows_are_data(weights, data)


def _masked(value: Any) -> MaskedWeight | MaskedSite | None:
    """Return the masked weight of a value, with moments or drawn; None for other values."""
    if isinstance(value, MomentTensor):
        return value.value if isinstance(value.value, MaskedWeight) else None
    masked = isinstance(value, Undrawn) and isinstance(value.site, MaskedSite)
    return value.site if masked else None


def _is_factor(fn: Any) -> bool:
    return isinstance(unwrapped(fn, (*WRAPPERS, MaskedDistribution))[0], dist.Unit)


def plates_of(site: Any) -> tuple[Plate, ...]:
    """Return the vectorised plates around a site."""
    return tuple(
        Plate(frame.name, frame.dim, frame.size, frame.full_size or frame.size)
        for frame in site["cond_indep_stack"]
        if frame.vectorized
    )
