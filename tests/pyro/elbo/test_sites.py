"""Plates, scales, masks, several observations, hand-written guides: Trace_ELBO's semantics."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import TraceMeanField_ELBO

from moment_calculus.errors import UnsupportedMoments
from pyro_moments import SVI, DeterministicELBO, DVIGuide
from tests.oracles.pyro_samples import assert_near, gaussian_loss, trace_elbo, vectorised_trace_elbo
from tests.pyro import models

X, Y = models.data()


def assert_equals_trace_elbo(model, guide, *args, samples=1500, elbo=None):
    """Conjugate models: no Gaussian matching is involved, so only the sampling error counts."""
    loss = (elbo or DeterministicELBO()).loss(model, guide, *args)
    assert_near(loss, trace_elbo(model, guide, *args, samples=samples))


def assert_equals_vectorised_trace_elbo(model, guide, *args, plates=1, most=math.inf):
    """The same from many draws at a time, which heavy tails need; the error is small."""
    loss = DeterministicELBO().loss(model, guide, *args)
    estimate = vectorised_trace_elbo(model, guide, *args, plates=plates)
    assert_near(loss, estimate)
    assert estimate[1] < most


def test_kl_annealing_on_the_model_alone():
    def model(x, y):
        with poutine.scale(scale=0.3):
            w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        models.observe(x, dist.Normal(x @ w, 0.5), y)

    def guide(x, y):
        loc = pyro.param("loc", torch.ones(3))
        pyro.sample("w", dist.Normal(loc, 0.2).to_event(1))

    assert_equals_trace_elbo(model, guide, X, Y)


def test_masks_by_handler_and_by_distribution():
    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            with poutine.mask(mask=y > 0):
                pyro.sample("first", dist.Normal(x @ w, 0.5), obs=y)
            pyro.sample("second", dist.Normal(x @ w, 0.5).mask(y < 0.5), obs=y)

    assert_equals_trace_elbo(model, DVIGuide(), X, Y)


def test_subsampled_plate_scales_the_likelihood():
    model, guide, elbo = models.subsampled, DVIGuide(), DeterministicELBO()
    full = elbo.loss(model, guide, X, Y, len(X))
    batches = torch.tensor([elbo.loss(model, guide, X, Y, 5) for _ in range(200)])
    assert abs(batches.mean() - full) < 4 * batches.std() / 200**0.5


def test_several_observed_sites():
    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        shift = pyro.sample("shift", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("first", dist.Normal(x @ w, 0.5), obs=y)
            pyro.sample("second", dist.Normal(x @ w + shift, 0.2), obs=2 * y)

    assert_equals_trace_elbo(model, DVIGuide(), X, Y)


def test_event_dimensions_of_observations():
    targets = torch.stack([Y, -Y], dim=-1)

    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
        models.observe(x, dist.Normal(x @ w, 0.5).to_event(1), y)

    assert_equals_trace_elbo(model, DVIGuide(), X, targets)


def test_log_scale_site_drives_the_noise():
    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        log_scale = pyro.sample("log_scale", dist.Normal(0.0, 1.0))
        models.observe(x, dist.Normal((x * w).sum(-1), torch.exp(log_scale)), y)

    assert_equals_vectorised_trace_elbo(model, DVIGuide(init_scale=0.3), X, Y)


def test_equals_trace_mean_field_where_that_is_exact():
    """The KL part alone: a likelihood without latent parameters has no sampling noise."""

    def model():
        pyro.sample("w", dist.Normal(1.0, 2.0).expand([3, 2]).to_event(2))

    guide = DVIGuide(init_scale=0.3)
    loss = DeterministicELBO().loss(model, guide)
    assert loss == pytest.approx(TraceMeanField_ELBO().loss(model, guide), rel=1e-5)


def test_named_sites_are_sampled():
    model, guide = models.with_precision, DVIGuide(init_scale=0.3)
    elbo = DeterministicELBO(sample_sites=["precision"], num_particles=30)
    svi = SVI(model, guide, elbo)
    assert svi.step(X, Y) > 0
    estimates = torch.tensor([elbo.loss(model, guide, X, Y) for _ in range(10)])
    expected, error = trace_elbo(model, guide, X, Y, samples=20_000)  # cheaper than particles
    tolerance = 4 * (error**2 + estimates.var().item() / 10) ** 0.5
    assert abs(estimates.mean().item() - expected) < tolerance


def test_guide_with_a_linear_gaussian_conditional_is_exact():
    """q(a) q(b | a) = the joint Gaussian that a multivariate Normal guide states directly."""

    def model(x, y):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        b = pyro.sample("b", dist.Normal(a, 2.0))
        models.observe(x, dist.Normal(a + b * x[:, 0], 0.5), y)

    def guide(x, y):
        a = pyro.sample("a", dist.Normal(0.3, 0.7))
        pyro.sample("b", dist.Normal(0.1 - 0.8 * a, 0.4))

    mean = torch.tensor([0.3, 0.1 - 0.8 * 0.3])
    covariance = torch.tensor([[0.49, -0.392], [-0.392, 0.64 * 0.49 + 0.16]])
    prior = dist.MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 1.0], [1.0, 5.0]]))
    posterior = dist.MultivariateNormal(mean, covariance)
    design = torch.stack([torch.ones(len(X)), X[:, 0]], -1)
    expected = gaussian_loss(design, Y, 0.5, posterior, prior)
    for covariance_mode in ("full", "diagonal"):
        loss = DeterministicELBO(covariance=covariance_mode).loss(model, guide, X, Y)
        assert loss == pytest.approx(expected, rel=1e-6)


def test_conditional_guide_sites_in_plates_equal_trace_elbo():
    y = torch.linspace(-1, 2, 6)

    def model(y):
        centre = pyro.sample("centre", dist.Normal(0.0, 1.0))
        with pyro.plate("groups", 6):
            spread = pyro.sample("spread", dist.LogNormal(0.3, 0.5))
            pyro.sample("obs", dist.Normal(centre, spread), obs=y)

    def guide(y):
        centre = pyro.sample("centre", dist.Normal(0.2, 0.3))
        with pyro.plate("groups", 6):
            pyro.sample("spread", dist.LogNormal(0.1 + 0.5 * centre, 0.2))

    assert_equals_vectorised_trace_elbo(model, guide, y)


def test_unknown_likelihood_is_refused_with_the_candidates():
    def model(y):
        a = pyro.sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        df = torch.tensor(3.0)
        pyro.sample("obs", dist.MultivariateStudentT(df, a, torch.eye(2)), obs=y)

    candidates = r"'obs'.*MultivariateStudentT.*Categorical.*Normal.*every univariate"
    with pytest.raises(UnsupportedMoments, match=candidates):
        DeterministicELBO().loss(model, DVIGuide(), torch.tensor([0.3, 0.1]))
