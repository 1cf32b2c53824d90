"""Designs of posteriordb as NumPyro models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from posteriors_designs import Data, Design

from numpyro_moments import DVIGuide, Fit, fit


def _noise(prior: tuple[str, float] | None) -> Any:
    if prior is None:
        return dist.ImproperUniform(constraints.positive, (), ())
    name, scale = prior
    if name == "HalfStudent":
        return dist.FoldedDistribution(dist.StudentT(3.0, 0.0, scale))
    return getattr(dist, name)(scale)


def regression(design: Design) -> Callable:
    size = design.x.shape[1]

    def model() -> None:
        if design.beta is None:
            prior = dist.ImproperUniform(constraints.real_vector, (), (size,))
        else:
            loc, scale = (jnp.broadcast_to(jnp.asarray(part), size) for part in design.beta)
            prior = dist.Normal(loc, scale).to_event(1)
        predictor = design.x @ numpyro.sample("beta", prior)
        if design.intercept is not None:
            predictor = predictor + numpyro.sample("intercept", dist.StudentT(*design.intercept))
        sigma = numpyro.sample("sigma", _noise(design.sigma))
        with numpyro.plate("data", len(design.y)):
            numpyro.sample("y", dist.Normal(predictor, sigma), obs=design.y)

    return model


def eight_schools(data: Data) -> Callable:
    y, sigma = (jnp.asarray(data[name], float) for name in ("y", "sigma"))

    def model() -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        with numpyro.plate("schools", len(y)):
            standard = numpyro.sample("theta_trans", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(mu + tau * standard, sigma), obs=y)

    return model


def trained(make: Callable[[], Callable], method: str) -> tuple[Fit, dict[str, Any]]:
    """The fit of a model, and location and scale by site."""
    with jax.enable_x64(True):
        found = fit(make(), DVIGuide(), method=method, float64=True)
    sites = {name.removesuffix("_auto_loc") for name in found.params if name.endswith("_loc")}
    part = lambda site, what: np.asarray(found.params[f"{site}_auto_{what}"])  # noqa: E731
    return found, {site: (part(site, "loc"), part(site, "scale")) for site in sites}
