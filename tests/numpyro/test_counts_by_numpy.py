"""Predictions of counts are computed by NumPy in place of JAX, against sums and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from scipy import stats
from scipy.special import expit

from moment_calculus.numerics.execution import NotOnHost, by_numpy
from numpyro_moments import DVIGuide, predict

Y = np.array([0.0, 2.0, 7.0])
COUNTS = np.arange(300.0)[:, None]
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
# The likelihood of NumPyro, and SciPy's masses of counts at points [nodes, rows] of the predictor.
LAWS = {
    "poisson": (lambda h: dist.Poisson(jnp.exp(h)), lambda k, h: stats.poisson.pmf(k, np.exp(h))),
    "binomial": (
        lambda h: dist.Binomial(9, logits=h),
        lambda k, h: stats.binom.pmf(k, 9, expit(h)),
    ),
    "negative binomial": (
        lambda h: dist.NegativeBinomial2(jnp.exp(h), 3.0).to_event(1),
        lambda k, h: stats.nbinom.pmf(k, 3.0, 3 / (3 + np.exp(h))),
    ),
    "zero-inflated": (
        lambda h: dist.ZeroInflatedPoisson(0.2, rate=jnp.exp(h)),
        lambda k, h: 0.2 * (k == 0) + 0.8 * stats.poisson.pmf(k, np.exp(h)),
    ),
    "beta-binomial": (
        lambda h: dist.BetaBinomial(jnp.exp(h), 2.0, 9),
        lambda k, h: stats.betabinom.pmf(k, 9, np.exp(h), 2.0),
    ),
}


def predicted(law):
    """The prediction, and points [nodes, rows] of the predictor."""

    def model(y=None):
        h = numpyro.sample("h", dist.Normal(0.0, 0.5).expand([3]).to_event(1))
        return numpyro.sample("y", LAWS[law][0](h), obs=y)

    guide, loc, scale = DVIGuide(model), np.array([-0.4, 0.5, 1.6]), np.array([0.4, 0.3, 0.2])
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.block():
        guide(jnp.asarray(Y))
    params = {"h_auto_loc": jnp.asarray(loc), "h_auto_scale": jnp.asarray(scale)}
    return predict(model, guide, params)["y"], loc + scale * POINTS[:, None]


def entropy(p):
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(-2)


@pytest.mark.parametrize(
    ("law", "double"), [*((law, True) for law in LAWS), ("poisson", False), ("binomial", False)]
)
def test_answers(law, double):
    with jax.enable_x64(double):
        prediction, points = predicted(law)
        given = LAWS[law][1](COUNTS, np.asarray(points, np.float64)[:, None])  # [nodes, k, rows]
        masses = np.tensordot(WEIGHTS / WEIGHTS.sum(), given, 1)
        close = {"rtol": 1e-6 if double else 2e-4, "atol": 1e-7 if double else 1e-5}
        at = masses[Y.astype(int), np.arange(3)]
        log_prob = prediction.log_prob(jnp.asarray(Y))
        assert isinstance(log_prob, jax.Array)
        joined = (lambda part: part.sum()) if log_prob.ndim == 0 else lambda part: part
        np.testing.assert_allclose(log_prob, joined(np.log(at)), **close)
        sums = masses.cumsum(0)
        found = prediction.cdf(jnp.asarray(Y + 0.5))
        np.testing.assert_allclose(found, sums[Y.astype(int), np.arange(3)], **close)
        quantiles = prediction.quantile([0.05, 0.5, 0.95])
        wanted = [(sums < level).sum(0) for level in (0.05, 0.5, 0.95)]
        np.testing.assert_array_equal(quantiles, wanted)
        np.testing.assert_allclose(prediction.entropy, joined(entropy(masses)), **close)
        inner = np.tensordot(WEIGHTS / WEIGHTS.sum(), entropy(given), 1)
        found = prediction.mutual_information
        wanted = joined(entropy(masses) - inner)
        np.testing.assert_allclose(found, wanted, **{**close, "rtol": 2e-3})
        assert found.dtype == prediction.mean.dtype


def test_what_numpy_cannot_do_is_left_to_the_framework():
    seen = []

    def function(array):
        seen.append(type(array))
        if isinstance(array, np.ndarray):
            raise NotOnHost
        return array + 1

    assert by_numpy(function, jnp.ones(2)).sum() == 4
    assert seen[0] is np.ndarray
    assert len(seen) == 2
    jax.jit(lambda array: by_numpy(function, array))(jnp.ones(2))  # traced: never by NumPy
    assert len(seen) == 3
