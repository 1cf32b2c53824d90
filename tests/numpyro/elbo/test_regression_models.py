"""Regressions of statisticians: the ELBO is the mean of Trace_ELBO."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import Predictive

from numpyro_moments import CovarianceDroppedWarning, DependenceWarning, DVIGuide, predict
from tests.oracles.numpyro_samples import assert_equals_trace_elbo, perturbed

POINTS, INPUTS, GROUPS = 30, 3, 5
RANDOM = np.random.default_rng(3)
X = jnp.asarray(2 * RANDOM.normal(size=(POINTS, INPUTS)), jnp.float32)
Y = jnp.sin(X[:, 0]) + 0.5 * X[:, 1]
COUNTS = jnp.asarray(RANDOM.poisson(np.exp(0.4 * Y)), jnp.float32)


def observe(distribution, y):
    with numpyro.plate("data", POINTS):
        numpyro.sample("obs", distribution, obs=y)


def coefficients():
    """Effects of a plate, which share a mean and a scale."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("inputs", INPUTS):
        effects = numpyro.sample("effects", dist.Normal(0.0, 1.0))
    return mean + scale * effects


def linear_predictor(x):
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(INPUTS), 1.0).to_event(1))
    return x @ weights


def shared_scale(x, y):
    observe(dist.Normal(x @ coefficients(), 0.5), y)


GROUP, RIVAL = np.arange(POINTS) % GROUPS, (3 * np.arange(POINTS) + 1) % GROUPS


def slopes_of_groups():
    """Intercept and slope of every group, with a common scale."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("groups", GROUPS):
        z = numpyro.sample("z", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    return scale * z


def varying_slopes(x, y):
    effects = slopes_of_groups()
    observe(dist.Normal(effects[GROUP, 0] + effects[GROUP, 1] * x[:, 0], 0.5), y)


def mean_of_groups_and_slope(x, y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("groups", GROUPS):
        effects = numpyro.sample("effects", dist.Normal(0.0, 1.0))
    observe(dist.Normal((mean + effects)[GROUP] + mean * x[:, 0], 0.5), y)


def paired_comparisons(x, y):
    """Bradley and Terry's model; some compare an element with itself."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("players", GROUPS):
        skill = numpyro.sample("skill", dist.Normal(0.0, scale))
    logits = skill[GROUP] - skill[RIVAL]
    observe(dist.Bernoulli(logits=logits), (y > 0).astype(int))


MODELS = {
    "varying slopes": varying_slopes,
    "a mean of groups and a slope": mean_of_groups_and_slope,
    "paired comparisons": paired_comparisons,
    "a shared scale": shared_scale,
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_elbo_equals_trace_elbo(model):
    warnings.simplefilter("error", DependenceWarning)
    warnings.simplefilter("error", CovarianceDroppedWarning)
    assert_equals_trace_elbo(model, DVIGuide(init_scale=0.15), X, Y, share=0.001)


def test_a_rate_that_is_no_exponential_is_integrated():
    """What NegativeBinomial2 derives from its parameters is a product of positive functions."""

    def model(x, counts=None):
        dispersion = numpyro.sample("dispersion", dist.Exponential(1.0))
        mean = jax.nn.softplus(linear_predictor(x))
        observe(dist.NegativeBinomial2(mean, dispersion), counts)

    assert_equals_trace_elbo(model, DVIGuide(init_scale=0.15), X, COUNTS, share=0.001)


def test_predicted_variances_know_what_effects_share():
    guide = DVIGuide(shared_scale, init_scale=0.3)
    values = perturbed(guide, X, Y)
    ours = predict(shared_scale, guide, values, X, None)["obs"]
    draws = Predictive(guide, params=values, num_samples=20_000)(jax.random.key(1), X, Y)
    effects = draws["mean"][:, None] + draws["scale"][:, None] * draws["effects"]
    sampled = np.asarray(effects @ X.T, np.float64)
    # the standard error of a variance whose fourth moment is at most ten times its square
    error = 3 / np.sqrt(20_000)
    np.testing.assert_allclose(ours.epistemic_variance, sampled.var(0), rtol=4 * error)
