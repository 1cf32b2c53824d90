"""Designs of posteriordb as models, the same in both hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from posteriors_designs import DESIGNS, Data, Design


def positive(host: Any, prior: tuple[str, float] | None) -> Any:
    """The prior of a noise."""
    if prior is None:
        return host.dist.ImproperUniform(host.dist.constraints.positive, (), ())
    name, scale = prior
    if name == "HalfStudent":
        return host.dist.FoldedDistribution(host.dist.StudentT(3.0, 0.0, scale))
    return getattr(host.dist, name)(scale)


def coefficients(host: Any, design: Design) -> Any:
    """The prior of all coefficients but an intercept of its own."""
    size = design.x.shape[1]
    if design.beta is None:
        return host.dist.ImproperUniform(host.dist.constraints.real_vector, (), (size,))
    loc, scale = (host.array(np.full(size, part, float)) for part in design.beta)
    return host.dist.Normal(loc, scale).to_event(1)


def regression(host: Any, design: Design) -> Callable:
    sample, x, y = host.sample, host.array(design.x), host.array(design.y)

    def model() -> None:
        predictor = x @ sample("beta", coefficients(host, design))
        if design.intercept is not None:
            intercept = sample("intercept", host.dist.StudentT(*design.intercept))
            predictor = predictor + intercept
        sigma = sample("sigma", positive(host, design.sigma))
        with host.plate("data", len(y)):
            sample("y", host.dist.Normal(predictor, sigma), obs=y)

    return model


def eight_schools(host: Any, data: Data) -> Callable:
    sample, dist = host.sample, host.dist
    y, sigma = (host.array(np.asarray(data[name], float)) for name in ("y", "sigma"))

    def model() -> None:
        mu = sample("mu", dist.Normal(0.0, 5.0))
        tau = sample("tau", dist.HalfCauchy(5.0))
        with host.plate("schools", len(y)):
            standard = sample("theta_trans", dist.Normal(0.0, 1.0))
            sample("y", dist.Normal(mu + tau * standard, sigma), obs=y)

    return model


@dataclass(frozen=True)
class Posterior:
    """A posterior of posteriordb.

    Args:
        name: there.
        data: of its model.
        reference: names, means and standard deviations of its parameters, by reference draws.
        design: of a regression; None of the eight schools.
    """

    name: str
    data: Data
    reference: dict[str, Any]
    design: Design | None

    def model(self, host: Any) -> Callable:
        return regression(host, self.design) if self.design else eight_schools(host, self.data)

    def means(self, sites: dict[str, Any]) -> dict[str, Any]:
        """Of the reference's parameters, by location and scale of each site."""
        if self.design is None:
            return _means_of_schools(sites)
        means = dict(zip(self.design.coefficients(), sites["beta"][0], strict=True))
        return {**means, "sigma": _positive_mean(*sites["sigma"])}


def read(path: Path) -> Posterior:
    posterior, design = json.loads(path.read_text()), DESIGNS.get(path.stem)
    data = posterior["data"]
    return Posterior(path.stem, data, posterior["reference"], design and design(data))


def _means_of_schools(sites: dict[str, Any]) -> dict[str, Any]:
    mu, tau, standard = sites["mu"][0], _positive_mean(*sites["tau"]), sites["theta_trans"][0]
    schools = {f"theta[{i + 1}]": mu + tau * part for i, part in enumerate(standard)}
    return {**schools, "mu": mu, "tau": tau}


def _positive_mean(loc: Any, scale: Any) -> Any:
    """E exp(x), the transform of both hosts."""
    return np.exp(loc + scale**2 / 2)
