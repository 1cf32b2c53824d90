"""A positive or bounded site serves wherever its function of a Gaussian would."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.distributions import constraints

from pyro_moments import DeterministicELBO, DVIGuide
from tests.cases.hosts.sites_and_likelihoods import DATA, FUNCTIONS, LOCATION, PRIORS, SCALE, elbo


@pytest.fixture(autouse=True)
def _precision(double_precision):
    """The oracle's."""


def at(guide, location, scale):
    """Give the only site of a guide its parameters."""
    (site,) = guide._sites
    with torch.no_grad():
        getattr(guide.locs, f"{site.name}_unconstrained").fill_(location)
        unconstrained = torch.tensor(scale).expm1().log()
        getattr(guide.scales, f"{site.name}_unconstrained").fill_(unconstrained)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("prior", PRIORS)
def test_positive_sites_as_scales(prior, function):
    arguments = map(torch.tensor, PRIORS[prior][0])
    family = getattr(dist, prior.split()[0])(*arguments)

    def model():
        scale = FUNCTIONS[function](torch, pyro.sample("s", family))
        with pyro.plate("data", len(DATA)):
            pyro.sample("obs", dist.Normal(0.0, scale), obs=torch.as_tensor(DATA))

    guide, objective = DVIGuide(), DeterministicELBO()
    objective.loss(model, guide)
    at(guide, LOCATION, SCALE)
    assert -objective.loss(model, guide) == pytest.approx(elbo(prior, function), rel=1e-6)


FLAT = [constraints.real, constraints.positive, constraints.interval(-1.0, 2.0)]


@pytest.mark.parametrize("support", FLAT, ids=str)
def test_improper_priors(support):
    def model():
        centre = pyro.sample("centre", dist.ImproperUniform(support, (), ()))
        slopes = pyro.sample("slopes", dist.ImproperUniform(constraints.real_vector, (), (3,)))
        pyro.sample("obs", dist.Normal(centre + slopes.sum(-1), 1.0), obs=torch.tensor(0.7))

    guide = DVIGuide(init_scale=0.3)
    ours = DeterministicELBO().loss(model, guide)
    pyro.set_rng_seed(0)
    options = {"vectorize_particles": True, "max_plate_nesting": 0}
    sampled = pyro.infer.Trace_ELBO(num_particles=50_000, **options).loss(model, guide)
    assert ours == pytest.approx(sampled, abs=0.02)


@pytest.mark.parametrize("use", ["loc", "scale"])
def test_wide_posteriors_of_a_log_normal_site_are_not_nan(use):
    """Their moments leave the dtype's range: an infinite loss, or held finite."""

    def model():
        site = pyro.sample("s", dist.LogNormal(0.0, 1.0))
        family = dist.Normal(site, 1.0) if use == "loc" else dist.Normal(0.0, site)
        pyro.sample("obs", family, obs=torch.tensor(0.7))

    guide = DVIGuide(init_scale=100.0)
    loss = DeterministicELBO().loss_and_grads(model, guide)
    assert loss > 1e30
    assert not any(parameter.grad.isnan().any() for parameter in guide.parameters())
