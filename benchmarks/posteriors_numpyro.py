"""Models of posteriordb trained in NumPyro."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from posteriors_models import Host

from numpyro_moments import DVIGuide, Fit, fit

HOST = Host(numpyro, dist, jnp.asarray)


def trained(make: Callable[[], Callable], method: str) -> tuple[Fit, dict[str, Any]]:
    """The fit of a model, and location and scale by site."""
    with jax.enable_x64(True):
        found = fit(make(), DVIGuide(), method=method, float64=True)
    sites = {name.removesuffix("_auto_loc") for name in found.params if name.endswith("_loc")}
    part = lambda site, what: np.asarray(found.params[f"{site}_auto_{what}"])  # noqa: E731
    return found, {site: (part(site, "loc"), part(site, "scale")) for site in sites}
