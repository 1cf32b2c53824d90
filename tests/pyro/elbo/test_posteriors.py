"""Guide sites whose distribution has masks, or parameters that depend on other sites."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.distributions.transforms import AffineTransform, ExpTransform

from pyro_moments import DeterministicELBO, UnsupportedMoments
from tests.oracles.pyro_samples import assert_near, trace_elbo

LOC, SCALE = torch.tensor([0.3, -0.5, 1.0]), torch.tensor([0.4, 0.2, 0.6])
MASK = torch.tensor([True, False, True])


def model():
    pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))


@pytest.mark.parametrize("around", [lambda fn: fn, lambda fn: fn.expand([3])], ids=["", "expanded"])
def test_entropies_are_zero_where_a_guide_is_masked(around):
    def guide():
        pyro.sample("w", around(dist.Normal(LOC, SCALE).mask(MASK)).to_event(1))

    log_prior = -0.5 * (LOC**2 + SCALE**2 + math.log(2 * math.pi))
    expected = log_prior.sum() + (MASK * dist.Normal(LOC, SCALE).entropy()).sum()
    assert -DeterministicELBO().loss(model, guide) == pytest.approx(float(expected), rel=1e-6)


def test_a_function_of_a_site_may_be_an_event():
    def guide():
        m = pyro.sample("m", dist.Normal(LOC, SCALE).to_event(1), infer={"is_auxiliary": True})
        pyro.sample("w", dist.Delta(2 * m).to_event(1))

    assert_near(DeterministicELBO().loss(model, guide), trace_elbo(model, guide, samples=1500))


POSTERIORS = {
    "transform that depends": lambda m: dist.TransformedDistribution(
        dist.Normal(LOC, SCALE), [ExpTransform(), AffineTransform(m, 1.0)]
    ).to_event(1),
    "location that depends": lambda m: dist.MultivariateNormal(m, torch.eye(3)),
}


@pytest.mark.parametrize("cause", POSTERIORS)
def test_parameters_that_depend_on_other_sites_are_not_supported(cause):
    def guide():
        m = pyro.sample("m", dist.Normal(LOC, SCALE).to_event(1), infer={"is_auxiliary": True})
        pyro.sample("w", POSTERIORS[cause](m))

    with pytest.raises(UnsupportedMoments, match=cause) as refusal:
        DeterministicELBO().loss(model, guide)
    assert {"m", "w"} <= set(refusal.value.sites)
