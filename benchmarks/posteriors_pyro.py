"""Models of posteriordb trained, and sampled from, in Pyro."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from posteriors_models import Host
from posteriors_nuts import CHAINS, DRAWS
from pyro.infer import MCMC, NUTS
from torch.distributions import transform_to

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


def fresh_fit(seed: int, model: Callable, *data: Any, **options: Any) -> Fit:
    """A fit from a start of its own."""
    pyro.clear_param_store()
    torch.manual_seed(seed)
    return fit(model, DVIGuide(), *data, **options)


def nuts(make: Callable[[], Callable], watch: Callable) -> None:
    """Chain after chain: of several, ``MCMC`` makes processes where there are processors."""
    for _ in range(CHAINS):
        kernel = NUTS(make(), max_plate_nesting=1, init_strategy=_anywhere)
        MCMC(kernel, DRAWS, DRAWS, disable_progbar=True, hook_fn=watch).run()


def compiled_nuts(make: Callable[[], Callable]) -> None:
    """Nothing is compiled."""


def _anywhere(site: dict[str, Any]) -> torch.Tensor:
    """Pyro's ``init_to_uniform``, but for its draw from the prior: flat ones have none."""
    unconstrained = 4 * torch.rand(site["fn"].shape(), dtype=torch.float64) - 2
    return transform_to(site["fn"].support)(unconstrained)
