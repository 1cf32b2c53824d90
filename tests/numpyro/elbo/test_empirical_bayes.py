"""One prior: λ* to the analytic ELBO, its exact marginal to all else."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import torch
from jax.flatten_util import ravel_pytree
from numpyro.distributions.batch_util import promote_batch_shape
from numpyro.infer import Predictive, TraceMeanField_ELBO
from scipy import stats

from moment_guides.numpyro.empirical_bayes import EmpiricalBayesNormal
from moment_guides.numpyro.mean_field import DVIGuide
from moment_guides.pyro.empirical_bayes import EmpiricalBayesNormal as TorchEmpiricalBayesNormal
from numpyro_moments import DeterministicELBO
from tests.checks.jaxprs import by_numpy

KEY = jax.random.key(0)
SETTINGS = [((), 1.0, 10.0, ()), ((3,), 1.5, 2.0, ()), ((2, 3), 0.3, 40.0, (4,))]


def numbers(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(("shape", "alpha", "beta", "batch"), SETTINGS)
def test_it_is_the_distribution_of_the_pyro_side(shape, alpha, beta, batch):
    lead = (5, *batch)
    value, variance = numbers((*lead, *shape)), numbers((*lead, *shape), seed=1) ** 2
    theirs = TorchEmpiricalBayesNormal(shape, alpha, beta).expand(batch)
    ours = EmpiricalBayesNormal(shape, alpha, beta).expand(batch)

    @by_numpy
    def evaluated(value, variance):
        ours = EmpiricalBayesNormal(shape, alpha, beta).expand(batch)
        return {
            "log_prob": ours.log_prob(value),
            "expected_log_prob": ours.expected_log_prob(value, variance),
            "variance": ours.variance,
            "mean": ours.mean,
        }

    with jax.enable_x64(True):
        results = evaluated(value, variance)
    value, variance = torch.tensor(value), torch.tensor(variance)
    expected = {
        "log_prob": theirs.log_prob(value),
        "expected_log_prob": theirs.expected_log_prob(value, variance),
        "variance": theirs.variance,
        "mean": theirs.mean,
    }
    assert ours.batch_shape == tuple(theirs.batch_shape)
    assert ours.event_shape == tuple(theirs.event_shape)
    for name, result in results.items():
        np.testing.assert_allclose(result, expected[name], rtol=1e-12, err_msg=name)
    ours, theirs = EmpiricalBayesNormal(), TorchEmpiricalBayesNormal()
    assert (ours.alpha, ours.beta) == (theirs.alpha, theirs.beta)


def test_samples_have_the_marginal_scale_and_share_their_variance():
    # The second set's precision underflows: its hyperprior reaches down to zero.
    prior = EmpiricalBayesNormal([2], alpha=jnp.array([4.0, 0.01]), beta=6.0)
    draws, extreme = np.moveaxis(jax.jit(lambda: prior.sample(KEY, (40_000,)))(), 1, 0)
    assert draws.var() == pytest.approx(float(prior.variance[0, 0]), rel=0.05)
    squares = draws**2 - draws.var()
    assert (squares[:, 0] * squares[:, 1]).mean() > 0.5
    tails = np.abs(draws[:, 0]) > stats.t.ppf(0.995, df=8, scale=math.sqrt(1.5))
    assert tails.mean() == pytest.approx(0.01, abs=5 * 0.1 / 200)
    assert not np.isnan(extreme).any()


@pytest.mark.parametrize("function", ["log_prob", "expected_log_prob"])
def test_gradients_are_finite_at_extreme_weights(function):
    prior = EmpiricalBayesNormal([3])
    for size in (0.0, 1e-12, 1e8):
        arguments = (jnp.full(3, size), jnp.full(3, 1e-10))[: 1 + (function != "log_prob")]
        value, gradient = by_numpy(jax.value_and_grad(getattr(prior, function)))(*arguments)
        assert jnp.isfinite(value)
        assert jnp.isfinite(gradient).all()


def test_hyperparameters_must_be_positive():
    for arguments in ({"alpha": 0}, {"beta": -1.0}, {"alpha": jnp.array([1.0, math.nan])}):
        with pytest.raises(ValueError, match=r"alpha=.*beta=.*must both be positive"):
            EmpiricalBayesNormal([2], **arguments)


def test_it_is_a_pytree_that_passes_jit_vmap_and_scan():
    """Arrays of hyperparameters are one for each set."""
    value = numbers((3, 2)).astype(np.float32)
    densities = lambda p, v: (p.log_prob(v), p.expected_log_prob(v, jnp.ones(2)))  # noqa: E731
    alpha, beta = jnp.array([1.0, 2.0, 3.0]), jnp.array([2.0, 1.0, 0.5])
    expected = [
        densities(EmpiricalBayesNormal([2], float(a), float(b)), v)
        for a, b, v in zip(alpha, beta, value, strict=True)
    ]
    array = EmpiricalBayesNormal([2], alpha, beta)
    vmapped = jax.vmap(lambda a, b: EmpiricalBayesNormal([2], a, b))(alpha, beta)
    scanned = jax.lax.scan(
        lambda carry, x: (carry, EmpiricalBayesNormal([2], *x)), None, (alpha, beta)
    )[1]
    for prior in (
        array,
        by_numpy(lambda p: p)(array),
        *map(promote_batch_shape, (vmapped, scanned)),
    ):
        assert prior.batch_shape == (3,)
        found = by_numpy(densities)(prior, value)
        np.testing.assert_allclose(found, np.transpose(expected), rtol=1e-5)
    flat, rebuild = ravel_pytree(array)
    assert flat.size == 6
    assert rebuild(flat).event_shape == (2,)


def test_gradient_reaches_the_hyperparameters():
    def loss(alpha, beta):
        return EmpiricalBayesNormal([2], alpha, beta).log_prob(jnp.array([0.5, -1.0]))

    with jax.enable_x64(True):
        found = jax.grad(loss, argnums=(0, 1))(1.5, 2.0)
        for index, step in enumerate(np.eye(2) * 1e-6):
            point = np.array([1.5, 2.0])
            slope = (loss(*(point + step)) - loss(*(point - step))) / 2e-6
            assert float(found[index]) == pytest.approx(float(slope), rel=1e-6)


def test_values_out_of_the_support_are_validated_on_request():
    bad = jnp.array([math.nan, 1.0])
    with pytest.warns(UserWarning, match="Out-of-support"):
        assert EmpiricalBayesNormal([2], validate_args=True).log_prob(bad) == -math.inf
    assert jnp.isnan(EmpiricalBayesNormal([2], validate_args=False).expand([1]).log_prob(bad))


def regression(x, y=None):
    w = numpyro.sample("w", EmpiricalBayesNormal([3], alpha=1.0, beta=1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(x @ w, 0.3), obs=y)


def test_both_elbos_use_the_optimal_prior_variance():
    """That of ``expected_log_prob``, which is Pyro's."""

    def prior_only():
        numpyro.sample("matrix", EmpiricalBayesNormal([5, 2]))
        numpyro.sample("scalar", EmpiricalBayesNormal())
        numpyro.sample("event", EmpiricalBayesNormal([2]).expand([3]).to_event(1))

    shapes = {"matrix": (5, 2), "scalar": (), "event": (3, 2)}
    params = {f"{name}_auto_loc": jnp.full(shape, 0.3) for name, shape in shapes.items()}
    params |= {f"{name}_auto_scale": jnp.full(shape, 0.2) for name, shape in shapes.items()}
    elbos = TraceMeanField_ELBO(), DeterministicELBO()
    guide = DVIGuide(prior_only)
    host, ours = by_numpy(lambda: [e.loss(KEY, params, prior_only, guide) for e in elbos])()
    assert host == pytest.approx(float(ours), rel=1e-5)


def test_predictive_draws_the_prior():
    x = jnp.array(numbers((20, 3)))
    prior = jax.eval_shape(lambda: Predictive(regression, num_samples=50)(KEY, x))
    assert (prior["w"].shape, prior["obs"].shape) == ((50, 3), (50, 20))
