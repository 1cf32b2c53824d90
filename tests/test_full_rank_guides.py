"""Full-rank guides in both hosts: matrices of weights, and noise that depends on the location.

The oracle of the noise integrates over it, and over the location given the noise.
"""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from tests.cases.hosts import models, ordinary_models
from tests.cases.hosts.full_rank import HOSTS, KINDS, posterior

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

INPUTS, MODES = models.INPUTS, ("full", "backward")
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


def network(outputs, observe):
    """Weights as matrices; names in the order of the sites."""

    def model(host, x, y):
        weight = models.weights(host, "a_weight", INPUTS, 4)
        hidden = host.np.tanh(x @ weight + models.weights(host, "b_bias", 4))
        weight = models.weights(host, "c_weight", outputs, 4)
        out = hidden @ weight.T + models.weights(host, "d_bias", outputs)
        with host.plate("data", models.POINTS):
            host.sample("obs", observe(host, out), obs=y)

    return model


def multivariate(host, x, y):
    """All outputs of a linear map with the same noise, and their differences in a factor."""
    out = x @ models.weights(host, "a_weight", INPUTS, 2) + models.weights(host, "b_bias", 2)
    with host.plate("data", models.POINTS):
        host.sample("obs", host.dist.Normal(out, 0.3).to_event(1), obs=host.np.stack([y, y], -1))
        host.sample("less", host.dist.Normal(out[:, 0] - out[:, 1], 0.3), obs=y)


NETWORKS = {
    "heteroscedastic": (
        network(2, lambda h, f: h.dist.Normal(f[:, 0], h.np.exp(0.5 * f[:, 1]))),
        "y",
        26,
    ),
    "classes": (network(3, lambda h, f: h.dist.Categorical(logits=f)), "classes", 31),
}


@pytest.mark.parametrize("covariance", MODES)
@pytest.mark.parametrize("name", NETWORKS)
def test_matrices_of_a_full_rank_guide_in_both_frameworks(name, covariance):
    model, target, size = NETWORKS[name]
    parts = posterior(size, spread=0.1)
    check_both(model, KINDS[size % 2], parts, "x", target, covariance=covariance)


ORDINARY = [("logistic", 4, KINDS[0]), ("eight schools, not centred", 10, KINDS[1])]


@pytest.mark.parametrize(("name", "size", "kind"), ORDINARY)
def test_ordinary_models_in_both_frameworks(name, size, kind):
    """All components alike: the frameworks put the sites in different orders."""
    model, arguments = ordinary_models.CASES[name]
    factor, scale = np.ones((size, 2)), np.full(size, 0.4)
    covariance = np.full((size, size), 2 * 0.4**2) + np.diag(scale**2)
    parts = {"loc": np.full(size, 0.1), "cov_factor": factor, "scale": scale}
    check_both(model, kind, {**parts, "covariance": covariance}, *arguments.split())


def check_both(model, kind, parts, *arguments, covariance="full"):
    data = [ordinary_models.DATA[argument] for argument in arguments]
    ours, theirs = (
        loss(model, kind, parts, *data, covariance=covariance).item() for loss in HOSTS.values()
    )
    assert np.isfinite(ours)
    assert ours == pytest.approx(theirs, rel=1e-10)


@pytest.mark.parametrize("mode", MODES)
def test_a_linear_map_with_dependent_weights_is_exact(mode):
    data = models.arrays()
    parts = posterior(8)
    mean, covariance = parts["loc"], parts["covariance"]
    fit = 0.0
    for column in ([1, 0], [0, 1], [1, -1]):  # both outputs, and their difference
        design = np.hstack([np.kron(data["x"], column), np.tile(column, (models.POINTS, 1))])
        variance = np.einsum("ni,ij,nj->n", design, covariance, design)
        squared = (data["y"] - design @ mean) ** 2 + variance
        fit += (stats.norm(0, 0.3).logpdf(0) - 0.5 * squared / 0.3**2).sum()
    prior = np.array([1 / INPUTS] * 6 + [0.5] * 2)  # variances, by the number of inputs
    squares = (mean**2 + np.diag(covariance)) / prior
    of_weights = -0.5 * (np.log(2 * np.pi * prior) + squares).sum()
    entropy = stats.multivariate_normal(mean, covariance).entropy()
    for name, loss in HOSTS.items():
        arguments = multivariate, KINDS[0], parts, data["x"], data["y"]
        ours = loss(*arguments, covariance=mode).item()
        assert ours == pytest.approx(-(fit + of_weights + entropy), rel=1e-9), name


@pytest.mark.parametrize("mode", MODES)
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
@pytest.mark.parametrize("name", HOSTS)
def test_location_and_noise_of_one_guide(family, noise, row, kind, mode, name):
    data = models.arrays()
    parts = posterior(INPUTS + 2)
    assert abs(parts["covariance"][1, [0, 2, 3, 4]]).min() > 1e-3
    oracle = expected(family, noise, parts, data["x"], data["y"])
    rough = 1e-4 if family == "Laplace" else 1e-8  # its kink, in the oracle
    model = regression(family, noise, row)
    ours = HOSTS[name](model, kind, parts, data["x"], data["y"], covariance=mode).item()
    assert ours == pytest.approx(oracle, rel=rough)
