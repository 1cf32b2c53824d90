"""What an observed site contributes to the ELBO: its expected log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import MaskedDistribution
from pyro.infer.util import is_validation_enabled
from pyro.util import check_site_shape

from moment_calculus.hosts.wrappers import unwrapped
from moment_calculus.objectives.data import Plate
from moment_calculus.objectives.masked_rows import Observed, refuse_other_rows
from moment_calculus.operations.dropout.masked import MaskedWeight
from moment_calculus.refusals.errors import UnsupportedMoments
from pyro_moments.diagnosis import refuse_infinite_data
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.likelihoods import evaluate
from pyro_moments.particles.site import MaskedSite
from pyro_moments.particles.undrawn import Undrawn
from pyro_moments.sites.latent import scaled_sum
from pyro_moments.sites.transformed import WRAPPERS


def observed_term(name: str, site: Any) -> torch.Tensor:
    """E_q[log p] of one observed site, with its scale and mask; its log-density where it is drawn.

    Args:
        name: the site.
        site: its node in the model's trace.

    Raises:
        UnsupportedMoments: if the observations are not finite or there is no rule; the message
            names the site.
        ValueError: Pyro's, if the shape of observations and distribution together is not that of
            the site's plates.
    """
    if (drawn := site.get("log_prob")) is not None:
        return scaled_sum(drawn, site)
    masked = site["mask"] is not None or isinstance(site["fn"], MaskedDistribution)
    if masked and is_validation_enabled():
        refuse_infinite_data(name, site)  # it does not show in the loss, only in its gradients
    try:
        log_prob = evaluate(name, site["fn"], site["value"])
    except UnsupportedMoments as refusal:
        raise refusal.at_site(name, site.get("line", "")) from None
    if is_validation_enabled():
        check_site_shape({**site, "log_prob": log_prob}, math.inf)  # type: ignore[arg-type]
    return scaled_sum(log_prob, site)


def is_observation(site: Any) -> bool:
    """Whether a node of a trace is an observed site.

    Args:
        site: the node; deterministic sites are recorded as observed, and contribute nothing.
    """
    return is_sample(site) and site["is_observed"]


def is_latent(site: Any) -> bool:
    """Whether a node of a trace is a latent site.

    Args:
        site: the node.
    """
    return is_sample(site) and not site["is_observed"]


def is_sample(site: Any) -> bool:
    """Whether a node of a trace is a site with a distribution, not a deterministic one.

    Args:
        site: the node.
    """
    return site["type"] == "sample" and not (site["infer"] or {}).get("_deterministic")


def refuse_masks_of_other_rows(sites: Mapping[str, Any], latent: Collection[str]) -> None:
    """Refuse masks of rows that are no data; see :func:`.masked_rows.refuse_other_rows`.

    Args:
        sites: nodes of a trace of the model with moments or with draws, by name.
        latent: names of the latent ones.
    """
    samples = {name: site for name, site in sites.items() if site["type"] == "sample"}
    values = {name: site["value"] for name, site in samples.items() if name in latent}
    weights = {
        name: weight for name, value in values.items() if (weight := _masked(value)) is not None
    }
    if not weights:
        return
    data = {
        name: Observed(plates_of(site), tuple(site["value"].shape))
        for name, site in samples.items()
        if name not in latent and is_sample(site) and not _is_factor(site["fn"])
    }
    refuse_other_rows(weights, data)


def _masked(value: Any) -> MaskedWeight | MaskedSite | None:
    """A masked weight, with moments or drawn."""
    if isinstance(value, MomentTensor):
        return value.value if isinstance(value.value, MaskedWeight) else None
    masked = isinstance(value, Undrawn) and isinstance(value.site, MaskedSite)
    return value.site if masked else None


def _is_factor(fn: Any) -> bool:
    return isinstance(unwrapped(fn, (*WRAPPERS, MaskedDistribution))[0], dist.Unit)


def plates_of(site: Any) -> tuple[Plate, ...]:
    """The plates around a site.

    Args:
        site: node of a trace.
    """
    return tuple(
        Plate(frame.name, frame.dim, frame.size, frame.full_size or frame.size)
        for frame in site["cond_indep_stack"]
        if frame.vectorized
    )
