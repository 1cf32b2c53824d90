"""Guides with dependent sites: full-rank Normals and linear Gaussian conditionals."""

import pyro
import pyro.distributions as dist
import pytest
import torch
import torch.nn.functional as F
from pyro.distributions import constraints
from pyro.infer.autoguide import (
    AutoHierarchicalNormalMessenger,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormalMessenger,
    AutoStructured,
)

from moment_calculus.errors import UnsupportedMoments
from pyro_moments import DeterministicELBO
from tests.oracles.pyro_samples import assert_near, gaussian_loss, trace_elbo
from tests.pyro import models
from tests.pyro.guides.test_host_guides import SCALE, linear

X, Y = models.data()


def correlated(make_guide, model, x, y):
    """A full-rank guide with random parameters, its mean and covariance."""
    guide = make_guide(model, init_scale=SCALE)
    guide(x, y)
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape).reshape(parameter.shape))
        if isinstance(guide, AutoMultivariateNormal):
            guide.scale_tril = torch.eye(4) + 0.4 * torch.randn(4, 4).tril(-1)
    posterior = guide.get_posterior()
    return guide, posterior.mean.detach(), posterior.covariance_matrix.detach()


def layer(*shape):
    """The same regression with a matrix for its weights, of one row or one column."""

    def model(x, y):
        weight = pyro.sample("w", dist.Normal(torch.zeros(shape), 1.0).to_event(2))
        bias = pyro.sample("b", dist.Normal(torch.full((1,), 0.5), 2.0).to_event(1))
        output = F.linear(x, weight, bias) if shape[0] == 1 else x @ weight + bias
        models.observe(x, dist.Normal(output.squeeze(-1), 0.3), y)

    return model


@pytest.mark.parametrize("make_guide", [AutoMultivariateNormal, AutoLowRankMultivariateNormal])
@pytest.mark.parametrize(
    "linear", [linear, layer(1, 3), layer(3, 1)], ids=["vector", "row", "column"]
)
def test_full_rank_guides_are_exact_for_linear_regression(linear, make_guide):
    guide, mean, covariance = correlated(make_guide, linear, X, Y)
    assert (covariance - covariance.diag().diag()).abs().max() > 0.01
    design = torch.cat([X, torch.ones(len(X), 1)], -1)
    prior = dist.MultivariateNormal(
        torch.tensor([0.0, 0.0, 0.0, 0.5]), torch.tensor([1.0, 1.0, 1.0, 4.0]).diag()
    )
    posterior = dist.MultivariateNormal(mean, covariance)
    expected = gaussian_loss(design, Y, 0.3, posterior, prior)
    assert DeterministicELBO().loss(linear, guide, X, Y) == pytest.approx(expected, rel=1e-5)


def test_hand_written_multivariate_normal_guide():
    tril = torch.tensor([[0.5, 0.0, 0.0], [0.3, 0.4, 0.0], [-0.2, 0.1, 0.6]])

    model = models.regression(lambda f: dist.Normal(f, 0.3))

    posterior = dist.MultivariateNormal(torch.ones(3), scale_tril=tril)

    def guide(x, y):
        pyro.sample("w", posterior)

    prior = dist.MultivariateNormal(torch.zeros(3), torch.eye(3))
    expected = gaussian_loss(X, Y, 0.3, posterior, prior)
    assert DeterministicELBO().loss(model, guide, X, Y) == pytest.approx(expected, rel=1e-5)


def test_full_rank_guides_are_refused_where_correlations_would_be_lost():
    guide = AutoMultivariateNormal(linear)
    with pytest.raises(UnsupportedMoments, match=r"'diagonal' would ignore.*(?s:.)*AutoDiagonal"):
        DeterministicELBO(covariance="diagonal").loss(linear, guide, X, Y)


def test_full_rank_guides_of_networks():
    """The matrices of ``nn.Linear`` with ten outputs, and those that meet a hidden layer."""
    network = models.sequential(activation=torch.nn.Tanh)
    guide = AutoMultivariateNormal(network, init_scale=0.05)
    guide(X, Y)
    with torch.no_grad():
        size = len(guide.loc)
        guide.loc.copy_(0.5 * torch.randn(size))
        guide.scale_tril = torch.eye(size) + 0.3 * torch.randn(size, size).tril(-1)
    assert_near(
        DeterministicELBO().loss(network, guide, X, Y),
        trace_elbo(network, guide, X, Y, samples=2000),
    )


def test_structured_guides_are_exact_while_their_conditionals_are_normal():
    names = ["w", "b"]
    guide = AutoStructured(linear, conditionals="normal", dependencies="linear")
    guide(X, Y)
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    assert_near(
        DeterministicELBO().loss(linear, guide, X, Y), trace_elbo(linear, guide, X, Y, samples=1000)
    )
    joint = AutoStructured(linear, conditionals="mvn")
    with pytest.raises(UnsupportedMoments, match=r"'w' has the conditional 'mvn'.*(?s:.)*'normal'"):
        DeterministicELBO().loss(linear, joint, X, Y)
    assert DeterministicELBO(sample_sites=names).loss(linear, joint, X, Y) > 0


class Conditional(AutoNormalMessenger):
    """A conditional of its own for one site, as Pyro's documentation shows."""

    def get_posterior(self, name, prior):
        if name != "c":
            return super().get_posterior(name, prior)
        slope = pyro.param("slope", lambda: torch.tensor(0.6))
        scale = pyro.param("scale", lambda: torch.tensor(0.4), constraint=constraints.positive)
        return dist.Normal(0.1 + slope * (self.upstream_value("a") + prior.loc), scale)


@pytest.mark.parametrize("make_guide", [AutoHierarchicalNormalMessenger, Conditional])
def test_guide_messengers_may_follow_the_model(make_guide):
    """Their conditionals are linear in the sites above: no longer mean-field, still exact."""
    y = torch.tensor([0.3, -0.8, 1.2])

    def model(y):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        b = pyro.sample("b", dist.Normal(0.5, 1.0))
        with pyro.plate("data", 3):
            c = pyro.sample("c", dist.Normal(a + b, 0.7))
            pyro.sample("obs", dist.Normal(c, 0.5), obs=y)

    guide = make_guide(model)
    guide(y)
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    assert_near(
        DeterministicELBO().loss(model, guide, y), trace_elbo(model, guide, y, samples=1500)
    )
