"""Guides of the hosts for simplices, ordered vectors and Cholesky factors: the loss of our own."""

import jax
import numpy as np
import numpyro.infer
import pyro.infer.autoguide
import pytest

from moment_calculus.errors import UnsupportedMoments
from tests.checks.jaxprs import by_numpy

Y = np.array([[0.3, -0.2, 0.3], [1.1, 0.9, 1.1], [-0.8, -1.5, -0.8]], np.float32)
CLASSES = np.array([0, 2, 1, 2])


def factor(host, size=2, scaled=True):
    root = host.language.sample("site", host.dist.LKJCholesky(size, 1.5))
    if scaled:
        prior = host.dist.HalfNormal(host.np.ones(size)).to_event(1)
        root = host.language.sample("scale", prior)[..., None] * root
    with host.language.plate("rows", 3):
        fn = host.dist.MultivariateNormal(host.np.zeros(size), scale_tril=root)
        host.language.sample("y", fn, obs=host.array(Y[:, :size]))


def larger_factor(host):
    factor(host, 3, scaled=False)


def matrix(host):
    correlation = host.language.sample("site", host.dist.LKJ(3, 1.5))
    with host.language.plate("rows", 3):
        fn = host.dist.MultivariateNormal(host.np.zeros(3), covariance_matrix=correlation)
        host.language.sample("y", fn, obs=host.array(Y))


def simplex(host):
    shares = host.language.sample("site", host.dist.Dirichlet(host.array([1.0, 2.0, 1.5])))
    with host.language.plate("rows", 4):
        host.language.sample("y", host.dist.Categorical(shares), obs=host.array(CLASSES))


def ordered(host):
    normal = host.dist.Normal(host.np.zeros(2), 1.5).to_event(1)
    transform = host.dist.transforms.OrderedTransform()
    cuts = host.language.sample("site", host.dist.TransformedDistribution(normal, [transform]))
    with host.language.plate("rows", 4):
        fn = host.dist.OrderedLogistic(host.np.zeros(4), cuts)
        host.language.sample("y", fn, obs=host.array(CLASSES))


VALUES = {
    factor: {"site": [[1.0, 0.0], [0.6, 0.8]], "scale": [0.7, 1.2]},
    larger_factor: {"site": np.eye(3).tolist()},
    matrix: {"site": np.eye(3).tolist()},
    simplex: {"site": [0.2, 0.5, 0.3]},
    ordered: {"site": [-0.5, 0.9]},
}
BEGIN = {"numpyro": numpyro.infer.init_to_value, "pyro": pyro.infer.autoguide.init_to_value}
ROWS = [
    ("pyro", model, f"Auto{kind}Normal")
    for model in VALUES
    if model is not matrix
    for kind in ("", "Diagonal")
]
ROWS += [("numpyro", model, "AutoDiagonalNormal") for model in (factor, simplex)]


def loss(host, model, kind=None):
    values = {name: host.np.asarray(value) for name, value in VALUES[model].items()}
    begin = {"init_loc_fn": BEGIN[host.name](values=values), "init_scale": 0.3}

    def program():
        model(host)

    guide = getattr(host.autoguide, kind)(program, **begin) if kind else None
    guide = guide or host.package.DVIGuide(program, **begin)
    elbo = host.package.DeterministicELBO()
    if host.name == "pyro":
        return elbo.loss(program, guide)
    svi = host.package.SVI(program, guide, elbo)
    return float(by_numpy(lambda key: svi.evaluate(svi.init(key)))(jax.random.key(0)))


@pytest.mark.parametrize(("host", "model", "kind"), ROWS, indirect=["host"])
def test_the_loss_is_that_of_our_own_guide(host, model, kind):
    assert loss(host, model, kind) == pytest.approx(loss(host, model), rel=1e-5)


@pytest.mark.parametrize(
    ("host", "model"),
    [("pyro", factor), ("pyro", larger_factor), ("pyro", simplex), ("numpyro", factor)],
    indirect=["host"],
)
def test_a_joint_guide_whose_coordinates_are_independent_has_that_loss(host, model):
    """As each begins; sites, factors and scales then are parts of one vector."""
    assert loss(host, model, "AutoMultivariateNormal") == pytest.approx(loss(host, model), rel=1e-5)


@pytest.mark.parametrize(
    ("host", "model"), [("pyro", matrix), ("numpyro", matrix)], indirect=["host"]
)
def test_dependent_coordinates_of_a_correlation_matrix_are_refused_by_their_cause(host, model):
    with pytest.raises(UnsupportedMoments, match="coordinates of a correlation matrix"):
        loss(host, model, "AutoMultivariateNormal")
