"""Designs of posteriordb as Pyro models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from posteriors_designs import Data, Design
from pyro.distributions import constraints

from pyro_moments import DVIGuide, Fit, fit


def _noise(prior: tuple[str, float] | None) -> Any:
    if prior is None:
        return dist.ImproperUniform(constraints.positive, (), ())
    name, scale = prior
    if name == "HalfStudent":
        return dist.FoldedDistribution(dist.StudentT(3.0, 0.0, scale))
    return getattr(dist, name)(scale)


def regression(design: Design) -> Callable:
    x, y = torch.tensor(design.x), torch.tensor(design.y)

    def model() -> None:
        if design.beta is None:
            prior = dist.ImproperUniform(constraints.real_vector, (), x.shape[1:])
        else:
            loc, scale = (torch.as_tensor(part).expand(x.shape[1]) for part in design.beta)
            prior = dist.Normal(loc, scale).to_event(1)
        predictor = x @ pyro.sample("beta", prior)
        if design.intercept is not None:
            predictor = predictor + pyro.sample("intercept", dist.StudentT(*design.intercept))
        sigma = pyro.sample("sigma", _noise(design.sigma))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(predictor, sigma), obs=y)

    return model


def eight_schools(data: Data) -> Callable:
    y, sigma = (torch.tensor(data[name], dtype=torch.float64) for name in ("y", "sigma"))

    def model() -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = pyro.sample("tau", dist.HalfCauchy(5.0))
        with pyro.plate("schools", len(y)):
            standard = pyro.sample("theta_trans", dist.Normal(0.0, 1.0))
            pyro.sample("y", dist.Normal(mu + tau * standard, sigma), obs=y)

    return model


def trained(make: Callable[[], Callable], method: str) -> tuple[Fit, dict[str, Any]]:
    """The fit of a model, and location and scale by site."""
    pyro.clear_param_store()
    torch.manual_seed(0)
    found = fit(make(), DVIGuide(), method=method, float64=True)
    part = lambda site, what: found.params[f"DVIGuide.{what}s.{site}"].numpy()  # noqa: E731
    sites = {name.rsplit(".", 1)[1] for name in found.params if ".locs." in name}
    return found, {site: (part(site, "loc"), part(site, "scale")) for site in sites}
