"""What is left to Pyro's own errors, options out of range, and what is not an error at all."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Trace_ELBO

from pyro_moments import BBAlphaELBO, DeterministicELBO, DVIGuide, UnsupportedMoments
from tests.pyro import models
from tests.pyro.rules.test_refusals import X, Y, loss, scalar, with_nan


def negative_scale(x, y):
    pyro.sample("w", dist.Normal(0.0, -1.0))


def zero_scale_guide(x, y):
    pyro.sample("w", dist.Normal(0.0, torch.zeros(())))


HOST_ERRORS = {
    "non-positive scale in the model": (loss(negative_scale), r"scale.*GreaterThan"),
    "non-positive scale in the guide": (
        loss(scalar(lambda w: w), zero_scale_guide),
        r"scale.*GreaterThan",
    ),
    "non-positive scale at the mean": (
        loss(lambda x, y: pyro.sample("o", dist.Normal(0.0, -torch.exp(weight())), obs=y[0])),
        r"scale.*GreaterThan",
    ),
}


def weight():
    return pyro.sample("w", dist.Normal(0.0, 1.0))


@pytest.mark.parametrize(("run", "message"), HOST_ERRORS.values(), ids=HOST_ERRORS)
def test_pyros_own_errors_are_kept(run, message):
    with pytest.raises(ValueError, match=message):
        run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_sites": "w"}, r"sample_sites=\['w'\]"),
        ({"num_particles": 0}, "num_particles=0 must be at least 1"),
        ({"vectorize_particles": True}, "vectorize_particles=True is not supported"),
        ({"memory_limit": 0}, "memory_limit=0 must be positive"),
        ({"covariance": "banded"}, "full, backward, diagonal"),
        ({"rules": "mean_field"}, "exact, dvi"),
        ({"categorical": "taylor"}, "points, pairs"),
        ({"categorical": "sample", "categorical_draws": 0}, "categorical_draws=0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DeterministicELBO(**options)


def test_particles_without_sampled_sites_change_nothing():
    guide = DVIGuide()
    single = DeterministicELBO().loss(models.linear_regression, guide, X, Y)
    several = DeterministicELBO(num_particles=3).loss(models.linear_regression, guide, X, Y)
    assert several == pytest.approx(single, rel=1e-6)


def test_the_memory_limit_leaves_diagonal_and_independent_covariances_alone():
    options = {"memory_limit": 100}
    assert loss(models.sequential(2), covariance="diagonal", **options)() > 0
    assert loss(models.linear_regression, **options)() > 0


def test_no_gradients_are_left_by_a_refused_step():
    guide = DVIGuide()
    elbo = DeterministicELBO()
    elbo.loss(models.linear_regression, guide, X, Y)
    with pytest.raises(UnsupportedMoments):
        elbo.loss_and_grads(models.linear_regression, guide, with_nan(X, 0, 0), Y)
    assert all(parameter.grad is None for parameter in guide.parameters())


@pytest.mark.parametrize("objective", [DeterministicELBO, BBAlphaELBO])
def test_invalid_parameters_are_named(objective):
    guide = DVIGuide()
    DeterministicELBO().loss(models.linear_regression, guide, X, Y)
    with torch.no_grad():
        guide.locs.w_unconstrained[1] = math.nan
    with pytest.raises(ValueError, match="Expected parameter loc"):
        objective().loss(models.linear_regression, guide, X, Y)


def test_diverged_parameters_are_a_warning():
    guide = DVIGuide()
    elbo = DeterministicELBO()
    elbo.loss(models.linear_regression, guide, X, Y)
    with torch.no_grad():
        guide.locs.w_unconstrained.fill_(1e30)
    with pytest.warns(UserWarning, match="loss"):
        elbo.loss_and_grads(models.linear_regression, guide, X, Y)


def test_a_random_observation_is_served_exactly():
    """Observing a latent value is a density of it, not an error: E[log N(w; 0, 1)]."""

    def model():
        w = pyro.sample("w", dist.Normal(0.0, 2.0))
        pyro.sample("obs", dist.Normal(0.0, 1.0), obs=w)

    guide = DVIGuide(model, init_scale=0.7)
    options = {"vectorize_particles": True, "max_plate_nesting": 0}
    host = torch.tensor([Trace_ELBO(2000, **options).loss(model, guide) for _ in range(10)])
    assert abs(DeterministicELBO().loss(model, guide) - host.mean()) < 4 * host.std() / 10**0.5
