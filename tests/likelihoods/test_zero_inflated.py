"""Counts with more zeros whose gate and rate are random, beside a product of Gauss rules."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as numpyro_dist
import pyro.distributions as pyro_dist
import pytest
import torch
from scipy import special, stats

from moment_calculus.errors import UnsupportedMoments
from numpyro_moments.likelihoods import expected as in_numpyro
from pyro_moments.likelihoods import expected as in_pyro
from tests.checks.jaxprs import by_numpy
from tests.numpyro.likelihoods.cases import MEAN, VARIANCE, distribution, latent
from tests.oracles.quadrature import hermite_grid
from tests.pyro.likelihoods.test_likelihoods import latent as pyro_latent

COUNTS = np.array([0.0, 3.0, 0.0])
GATE_MEAN, GATE_VARIANCE = np.array([-2.0, 0.4, 1.0]), np.array([1.5, 0.2, 0.6])

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

# By name: of a framework's functions, the log-odds of the gate, and the log rate.
COUNTED = {
    "gate": lambda dist, exp, sigmoid, u, v: dist.ZeroInflatedDistribution(
        dist.Poisson(exp(v)), gate=sigmoid(u)
    ),
    "log-odds": lambda dist, exp, sigmoid, u, v: dist.ZeroInflatedDistribution(
        dist.Poisson(exp(v)), gate_logits=u
    ),
    "certain rate": lambda dist, exp, sigmoid, u, v: dist.ZeroInflatedDistribution(
        dist.Poisson(1.5 + 0 * MEAN_OF[dist]), gate_logits=u
    ),
    "negative binomial": lambda dist, exp, sigmoid, u, v: dist.ZeroInflatedDistribution(
        (dist.NegativeBinomialLogits if dist is numpyro_dist else dist.NegativeBinomial)(
            2.0, logits=v
        ),
        gate_logits=u,
    ),
    "another gate": lambda dist, exp, sigmoid, u, v: dist.ZeroInflatedDistribution(
        dist.Poisson(exp(v)), gate=1 - 0.5 * sigmoid(u)
    ),
}
MEAN_OF = {pyro_dist: torch.tensor(MEAN), numpyro_dist: MEAN}


def densities(name, u, v):
    base = {
        "certain rate": lambda: stats.poisson(1.5 + 0 * v),
        "negative binomial": lambda: stats.nbinom(2.0, special.expit(-v)),
    }.get(name, lambda: stats.poisson(np.exp(v)))()
    gate = 1 - 0.5 * special.expit(u) if name == "another gate" else special.expit(u)
    with np.errstate(divide="ignore"):
        extra = np.where(COUNTS == 0, np.log(gate), -np.inf)
    return np.logaddexp(extra, np.log1p(-gate) + base.logpmf(COUNTS))


def oracle(name):
    z, weights = hermite_grid(60, 2)
    u, v = (
        mean + np.sqrt(variance) * z[:, i : i + 1]
        for i, (mean, variance) in enumerate([(GATE_MEAN, GATE_VARIANCE), (MEAN, VARIANCE)])
    )
    return weights @ densities(name, u, v)


def of_pyro(name, mean, variance):
    u = pyro_latent("u", torch.as_tensor(mean), torch.as_tensor(variance))
    v = pyro_latent("v", torch.tensor(MEAN), torch.tensor(VARIANCE))
    fn = COUNTED[name](pyro_dist, torch.exp, torch.sigmoid, u, v)
    return in_pyro.evaluate("obs", fn, torch.tensor(COUNTS))


def of_numpyro(name, mean, variance):
    u, v = latent("u", mean, variance), latent("v")
    make = lambda u, v: COUNTED[name](numpyro_dist, jnp.exp, jax.nn.sigmoid, u, v)  # noqa: E731
    return in_numpyro.evaluate("obs", distribution(make, u, v), COUNTS)


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("evaluate", [of_pyro, of_numpyro])
def test_densities_agree_with_a_product_of_gauss_rules(evaluate, name):
    found = evaluate(name, GATE_MEAN, GATE_VARIANCE)
    np.testing.assert_allclose(found, oracle(name), rtol=2e-6)


def test_gradients_are_alike_and_finite_where_the_gate_is_certain():
    parts = GATE_MEAN, [0.0, 1.0, 0.0]
    mean, variance = (torch.tensor(part, requires_grad=True) for part in parts)
    of_pyro("log-odds", mean, variance).sum().backward()
    slopes = by_numpy(jax.grad(lambda *given: of_numpyro("log-odds", *given).sum(), (0, 1)))
    others = slopes(*map(jnp.array, parts))
    for ours, other in zip((mean.grad, variance.grad), others, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-8, atol=1e-12)
        assert np.isfinite(other).all()


def test_one_gaussian_behind_both():
    u = pyro_latent("u", torch.tensor(MEAN), torch.tensor(VARIANCE))
    fn = pyro_dist.ZeroInflatedPoisson(torch.exp(u), gate_logits=2 * u)
    z, weights = hermite_grid(100, 1)
    points = MEAN + np.sqrt(VARIANCE) * z
    found = in_pyro.evaluate("obs", fn, torch.tensor(COUNTS))
    np.testing.assert_allclose(found, weights @ densities("gate", 2 * points, points), rtol=1e-6)


def test_a_gaussian_gate_is_refused():
    u = pyro_latent("u", torch.tensor(GATE_MEAN), torch.tensor(GATE_VARIANCE))
    fn = pyro_dist.ZeroInflatedPoisson(torch.tensor(2.0), gate=u, validate_args=False)
    with pytest.raises(UnsupportedMoments, match="not confined"):
        in_pyro.evaluate("obs", fn, torch.tensor(COUNTS))


def of_three(host, latent, evaluate, dtype):
    """E log p of a negative binomial with random mean, concentration and gate, and a 0 and 3."""
    array = lambda *numbers: dtype(np.array(numbers))  # noqa: E731
    u, v, w = (
        latent(name, array(*mean), array(*variance))
        for name, mean, variance in [
            ("u", GATE_MEAN[:2], GATE_VARIANCE[:2]),
            ("v", [0.3, 1.0], [0.3, 0.8]),
            ("w", [0.5, 1.0], [0.5, 1.0]),
        ]
    )
    return evaluate(host, u, v, w, array(*COUNTS[:2]))


def in_pyro_by_rate(dist, u, v, w, counts):
    base = dist.GammaPoisson(torch.exp(w), torch.exp(w) / torch.exp(v))
    return in_pyro.evaluate(
        "obs", dist.ZeroInflatedDistribution(base, gate=torch.sigmoid(u)), counts
    )


def in_numpyro_by_mean(dist, u, v, w, counts):
    def make(u, v, w):
        base = dist.NegativeBinomial2(jnp.exp(v), jnp.exp(w))
        return dist.ZeroInflatedDistribution(base, gate=jax.nn.sigmoid(u))

    return in_numpyro.evaluate("obs", distribution(make, u, v, w), counts)


@pytest.mark.parametrize(
    "parts",
    [
        (pyro_dist, pyro_latent, in_pyro_by_rate, torch.as_tensor),
        (numpyro_dist, latent, in_numpyro_by_mean, np.asarray),
    ],
    ids=["pyro", "numpyro"],
)
def test_three_random_parameters_agree_with_a_product_of_gauss_rules(parts):
    z, weights = hermite_grid(40, 3)
    u = GATE_MEAN[:2] + GATE_VARIANCE[:2] ** 0.5 * z[:, :1]
    mean = np.exp([0.3, 1.0] + np.sqrt([0.3, 0.8]) * z[:, 1:2])
    shape = np.exp([0.5, 1.0] + np.sqrt([0.5, 1.0]) * z[:, 2:])
    log_base = stats.nbinom.logpmf(COUNTS[:2], shape, shape / (shape + mean))
    extra = np.where(COUNTS[:2] == 0, -np.logaddexp(0, -u), -np.inf)
    expected = weights @ np.logaddexp(extra, -np.logaddexp(0, u) + log_base)
    np.testing.assert_allclose(of_three(*parts), expected, rtol=2e-6)
