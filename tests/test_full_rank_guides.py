"""Full-rank guides in both hosts: location and noise of one likelihood depend on each other.

The oracle integrates over the noise, and over the location given the noise.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from tests.cases.hosts import models
from tests.cases.hosts.full_rank import HOSTS, KINDS, posterior
from tests.test_cross_framework import precision

INPUTS = models.INPUTS
NOISES = {
    "LogNormal": (lambda d: d.LogNormal(0.0, 1.0), np.exp, stats.lognorm(1.0)),
    "HalfNormal": (lambda d: d.HalfNormal(1.0), np.exp, stats.halfnorm()),
    "Gamma": (lambda d: d.Gamma(2.0, 1.0), np.exp, stats.gamma(2.0)),
    "Uniform": (lambda d: d.Uniform(0.0, 10.0), lambda u: 10 * expit(u), stats.uniform(0, 10)),
}
FAMILIES = {
    "Normal": (lambda d, f, s: d.Normal(f, s), lambda y, f, s: stats.norm(f, s).logpdf(y)),
    "StudentT": (lambda d, f, s: d.StudentT(4.0, f, s), lambda y, f, s: stats.t(4, f, s).logpdf(y)),
    "Laplace": (lambda d, f, s: d.Laplace(f, s), lambda y, f, s: stats.laplace(f, s).logpdf(y)),
}


def regression(family, noise, row):
    """Weights as a vector, as the row of ``nn.Linear``, or as a column; their names in order."""

    def model(host, x, y):
        shape = {"vector": (INPUTS,), "row": (1, INPUTS), "column": (INPUTS, 1)}[row]
        bias = host.sample("a_bias", host.dist.Normal(0.0, 2.0))
        scale = host.sample("b_noise", NOISES[noise][0](host.dist))
        prior = host.dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))
        weight = host.sample("c_weight", prior)
        weight = weight.T if row == "row" else weight
        f = x @ weight if row == "vector" else (x @ weight).squeeze(-1)
        with host.plate("data", models.POINTS):
            host.sample("obs", FAMILIES[family][0](host.dist, f + bias, scale), obs=y)

    return model


def expected(family, noise, parts, x, y):
    """The negative ELBO: likelihood and prior of the noise by quadrature, the rest closed."""
    mean, covariance = parts["loc"], parts["covariance"]
    steps = np.linspace(-9, 9, 241)
    weights = stats.norm.pdf(steps) / stats.norm.pdf(steps).sum()
    deviation = np.sqrt(covariance[1, 1])
    u = mean[1] + deviation * steps
    design = np.column_stack([np.ones(len(x)), np.zeros(len(x)), x])
    slope = design @ covariance[:, 1] / deviation
    variance = np.einsum("ni,ij,nj->n", design, covariance, design) - slope**2
    centre = (design @ mean)[:, None] + slope[:, None] * steps
    f = centre[..., None] + np.sqrt(variance)[:, None, None] * steps
    _, transform, prior = NOISES[noise]
    s = transform(u)
    terms = FAMILIES[family][1](y[:, None, None], f, s[:, None])
    fit = np.einsum("nuf,u,f->", terms, weights, weights)
    derivative = transform(u) if noise != "Uniform" else 10 * expit(u) * expit(-u)
    of_noise = weights @ (prior.logpdf(s) + np.log(derivative))
    others, scales = [0, 2, 3, 4], np.array([2.0, 1.0, 1.0, 1.0])
    squares = (mean**2 + np.diag(covariance))[others] / scales**2
    of_weights = -0.5 * (np.log(2 * np.pi * scales**2) + squares).sum()
    entropy = stats.multivariate_normal(mean, covariance).entropy()
    return -(fit + of_noise + of_weights + entropy)


@pytest.mark.parametrize(
    ("family", "noise", "row", "kind"),
    [
        ("Normal", "Uniform", "row", KINDS[0]),
        ("Normal", "LogNormal", "vector", KINDS[0]),
        ("Normal", "HalfNormal", "column", KINDS[1]),
        ("StudentT", "Gamma", "vector", KINDS[1]),
        ("Laplace", "Uniform", "vector", KINDS[0]),
    ],
)
def test_location_and_noise_of_one_guide(family, noise, row, kind):
    data = models.arrays()
    parts = posterior(INPUTS + 2)
    assert abs(parts["covariance"][1, [0, 2, 3, 4]]).min() > 1e-3
    oracle = expected(family, noise, parts, data["x"], data["y"])
    with precision("float64"):
        model = regression(family, noise, row)
        for name, loss in HOSTS.items():
            ours = loss(model, kind, parts, data["x"], data["y"]).item()
            rough = 1e-4 if family == "Laplace" else 1e-8  # its kink, in the oracle
            assert ours == pytest.approx(oracle, rel=rough), name
