"""Models of posteriordb trained in Pyro."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from posteriors_models import Host

from pyro_moments import DVIGuide, Fit, fit

HOST = Host(pyro, dist, torch.tensor)


def trained(make: Callable[[], Callable], method: str) -> tuple[Fit, dict[str, Any]]:
    """The fit of a model, and location and scale by site."""
    pyro.clear_param_store()
    torch.manual_seed(0)
    found = fit(make(), DVIGuide(), method=method, float64=True)
    sites = {name.rpartition("locs.")[2] for name in found.params if ".locs." in name}
    part = lambda site, what: found.params[f"DVIGuide.{what}s.{site}"].numpy()  # noqa: E731
    return found, {site: (part(site, "loc"), part(site, "scale")) for site in sites}
