"""Random walks and vectors that sum to zero, as values, as data and as latent sites of NumPyro.

The oracles are quadratic forms of NumPyro's own densities, and the evidence of Gaussian models.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import ZeroSumTransform
from numpyro.infer.autoguide import AutoMultivariateNormal
from scipy import stats

import numpyro_moments
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.multivariate import random_walk, zero_sum_normal
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.operations.shapes.zero_sum import zero_sum
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of

FLOW = propagation_of("full", "exact")
SIZE = 4
random = np.random.default_rng(0)
MEAN = random.normal(size=SIZE) - 0.2
ROOT = 0.5 * random.normal(size=(SIZE, SIZE))
CENTRE = np.eye(SIZE) - 1 / SIZE
DENSITIES = {
    "random walk": (random_walk, lambda s: dist.GaussianRandomWalk(s, SIZE), np.eye(SIZE)),
    "sum of zero": (
        lambda x, s: zero_sum_normal(x, s, (SIZE,)),
        lambda s: dist.ZeroSumNormal(s, (SIZE,)),
        CENTRE,
    ),
}
LOG_SCALE, SPREAD = -0.3, 0.5


@pytest.mark.parametrize("known", ["scale", "value", "nothing"])
@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.usefixtures("double_precision_in_jax")
def test_expected_densities(name, known):
    ours, theirs, image = DENSITIES[name]
    mean, covariance = image @ MEAN, image @ ROOT @ ROOT.T @ image
    value = as_value(Moments(mean, covariance=covariance), "x", FLOW)
    logs = as_value(Moments(np.array(LOG_SCALE), variance=np.array(SPREAD**2)), "s", FLOW)
    scale = np.exp(LOG_SCALE) if known == "scale" else apply(activation("exp"), logs)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    scales = np.exp(LOG_SCALE + (known != "scale") * SPREAD * nodes)
    exact = 0.0
    for node, weight in zip(scales, weights / weights.sum(), strict=True):
        steps = np.eye(SIZE) - np.eye(SIZE, k=-1) if name == "random walk" else np.eye(SIZE)
        squares = 0.0 if known == "value" else np.trace(steps @ covariance @ steps.T)
        exact += weight * (float(theirs(node).log_prob(mean)) - 0.5 * squares / node**2)
    found = float(ours(mean if known == "value" else value, scale))
    assert found == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.usefixtures("double_precision_in_jax")
def test_a_posterior_that_sums_to_zero_is_that_of_the_transform(shape):
    size = int(np.prod(shape))
    moments = Moments(random.normal(size=shape), variance=random.uniform(0.1, 1, size=shape))
    value = zero_sum(len(shape)).make(as_value(moments, "x", FLOW))
    transform = ZeroSumTransform(len(shape))
    matrix = jax.jacobian(transform)(jnp.zeros(shape)).reshape(-1, size)
    variance = ((np.asarray(matrix) ** 2) @ np.ravel(moments.variance)).reshape(value.shape)
    np.testing.assert_allclose(value.mean, transform(moments.mean), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(value.variance, variance, rtol=1e-12)


Y = random.normal(size=SIZE).astype(np.float32)
PRIORS = {
    "random walk": (dist.GaussianRandomWalk(0.7, SIZE), np.minimum.outer(*[np.arange(1, 5)] * 2)),
    "sum of zero": (dist.ZeroSumNormal(0.7, (SIZE,)), CENTRE),
}


@pytest.mark.parametrize("name", PRIORS)
def test_the_loss_of_a_joint_posterior_is_the_evidence(name):
    prior, covariance = PRIORS[name]

    def model(y):
        effect = numpyro.sample("effect", prior)
        with numpyro.plate("data", SIZE):
            numpyro.sample("y", dist.Normal(effect, 1.0), obs=y)

    fit = numpyro_moments.fit(model, AutoMultivariateNormal(model), jnp.asarray(Y), method="newton")
    evidence = stats.multivariate_normal(np.zeros(SIZE), np.eye(SIZE) + 0.49 * covariance)
    assert float(fit.loss) == pytest.approx(-evidence.logpdf(Y), rel=1e-5)


def test_linear_response_of_a_latent_vector_that_sums_to_zero():
    def model(y):
        effect = numpyro.sample("effect", dist.ZeroSumNormal(0.7, (SIZE,)))
        with numpyro.plate("data", SIZE):
            numpyro.sample("y", dist.Normal(effect, 1.0), obs=y)

    fit = numpyro_moments.fit(
        model, numpyro_moments.DVIGuide(), jnp.asarray(Y), method="newton", by_draws=False
    )
    response = numpyro_moments.linear_response(model, fit, jnp.asarray(Y))
    found = np.asarray(response.standard_deviation("effect"))  # of the coordinates
    np.testing.assert_allclose(found**2, np.full(SIZE - 1, 0.49 / 1.49), rtol=1e-3)
