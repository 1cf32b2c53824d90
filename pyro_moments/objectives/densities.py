"""Checks that a guide has a density, for objectives and comparisons by log densities."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.ops.provenance import ProvenanceTensor, detach_provenance, get_provenance
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus import errors
from moment_guides.families import no_density
from pyro_moments.objectives.base import Program
from pyro_moments.sites.messenger import model_site
from pyro_moments.sites.terms import dropout_posterior, without_wrappers


def check_density(program: Program, *, reparameterised: bool) -> None:
    """Raise for dropped weights, for points, and, if asked, without rsample."""
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
            raise errors.point_without_density(name)
    elif reparameterised and not fn.has_rsample:
        raise errors.not_reparameterised(name, inner, framework="Pyro", by_name=False)
