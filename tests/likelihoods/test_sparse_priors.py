"""Divergences from the horseshoe and log-uniform priors; refusals."""

import itertools
import math

import jax
import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.likelihoods.divergences import gaussian_entropy
from moment_guides.families.sparse_priors import (
    horseshoe,
    horseshoe_log_prob,
    log_uniform_divergence,
)
from tests.checks.jaxprs import by_numpy
from tests.checks.marks import IN_PYRO
from tests.fitting.models import started

# Means and standard deviations, in scales of the prior: also far apart.
MEANS = np.array([0.0, 0.0, 0.0, 1e-6, 0.1, 1.0, -3.0, 1e3, 1e3, 0.5, 1e6])
SPREADS = np.array([1e-6, 1.0, 1e3, 1e-6, 0.01, 0.3, 1.0, 1.0, 1e3, 1e-5, 10.0])
SCALE = 0.1


def log_density(w):
    """The marginal horseshoe density of unit scale: log((2π³)^−½ eᵘ E₁(u))."""
    u = np.asarray(w, float) ** 2 / 2
    near, far = np.minimum(u, 600.0), 1 / np.maximum(u, 600.0)
    series = np.log(far) + np.log1p(-far * (1 - far * (2 - far * (6 - 24 * far))))
    logs = np.where(u < 600, near + np.log(special.exp1(near)), series)
    return logs - 0.5 * math.log(2 * np.pi**3)


def expectation(function, mean, spread):
    """E f(w) by quadrature in log |w|, on each side of the pole."""

    def side(sign):
        def mass(y):
            return function(math.exp(y)) * math.exp(y) * normal.pdf(sign * math.exp(y))

        normal = stats.norm(mean, spread)
        ends = [math.log(abs(mean) + c * spread) for c in (12, 4, 1, 0.2)]
        near = [math.log(abs(mean) - c * spread) for c in (1, 4, 12) if abs(mean) > c * spread]
        edges = sorted({*ends, *near, *np.arange(ends[-1] - 40, ends[-1], 8)})
        pieces = itertools.pairwise(edges)
        return sum(integrate.quad(mass, *piece, epsabs=1e-12, limit=200)[0] for piece in pieces)

    return side(1) + side(-1)


@pytest.fixture(scope="module")
def horseshoe_oracle():
    pairs = zip(MEANS, SPREADS, strict=True)
    return np.array([expectation(log_density, *pair) for pair in pairs])


def test_the_density_of_the_horseshoe_is_its_hierarchy_integrated():
    for w in (1e-3, 0.3, 40.0):

        def joint(y, w=w):  # y = log λ
            scale = math.exp(y)
            return stats.norm.pdf(w, scale=scale) * stats.halfcauchy.pdf(scale) * scale

        edges = math.log(w) + np.array([-40, -5, 0, 5, 40])
        pieces = itertools.pairwise(edges)
        expected = sum(integrate.quad(joint, *piece, epsabs=0, limit=200)[0] for piece in pieces)
        assert horseshoe_log_prob(np.array(w), 1.0) == pytest.approx(math.log(expected), abs=1e-8)
        assert log_density(w) == pytest.approx(math.log(expected), abs=1e-8)


def test_horseshoe_against_quadrature(horseshoe_oracle):
    expected = horseshoe_oracle - math.log(SCALE)
    mean, variance = SCALE * MEANS, (SCALE * SPREADS) ** 2
    np.testing.assert_allclose(horseshoe(mean, variance, SCALE), expected, atol=1e-8, rtol=0)
    single = [torch.tensor(part, dtype=torch.float32) for part in (mean, variance)]
    np.testing.assert_allclose(horseshoe(*single, SCALE), expected, atol=1.2e-5, rtol=0)


def test_the_horseshoe_is_above_the_bound_by_factors(horseshoe_oracle):
    """Louizos et al. 2017, at the best factor of the scale: log p(√(m² + v))."""
    gap = horseshoe_oracle - log_density(np.hypot(MEANS, SPREADS))
    assert (gap > -1e-9).all()
    assert gap.max() == pytest.approx(np.euler_gamma + math.log(2), abs=5e-3)  # m = 0, far out


def test_log_uniform_against_quadrature():
    spread = np.array([1e-3, 0.03, 0.2, 0.5, 1.0, 4.0, 1e3, 1.0])
    mean = np.array([1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    constant = -0.5 * (math.log(4 * math.pi * math.e) + np.euler_gamma)
    pairs = zip(mean, spread, strict=True)
    logs = np.array([expectation(math.log, *pair) for pair in pairs])
    expected = logs - constant - gaussian_entropy(spread**2)
    np.testing.assert_allclose(log_uniform_divergence(mean, spread**2), expected, atol=1e-9, rtol=0)
    single = [torch.tensor(part, dtype=torch.float32) for part in (mean, spread**2)]
    np.testing.assert_allclose(log_uniform_divergence(*single), expected, atol=1e-5, rtol=0)


def test_molchanovs_fit_is_off_by_a_hundredth_of_a_nat():
    alpha = 10.0 ** np.linspace(-8, 8, 2001)
    fit = 0.63576 * (1 - special.expit(1.87320 + 1.48695 * np.log(alpha)))
    fit = fit + 0.5 * np.log1p(1 / alpha)
    error = np.abs(fit - log_uniform_divergence(np.ones_like(alpha), alpha)).max()
    assert 0.0093 < error < 0.0095


def slopes(function, mean, variance):
    """Derivatives by the mean and the variance: of torch, and of JAX."""
    arrays = [torch.tensor(part, requires_grad=True) for part in (mean, variance)]
    ours = torch.autograd.grad(function(*arrays).sum(), arrays)
    with jax.enable_x64(True):
        theirs = by_numpy(jax.grad(lambda m, v: function(m, v).sum(), argnums=(0, 1)))(
            mean, variance
        )
    return [part.numpy() for part in ours], theirs


@pytest.mark.parametrize(
    "function",
    [lambda m, v: horseshoe(m, v, SCALE), log_uniform_divergence],
    ids=["horseshoe", "log-uniform"],
)
def test_slopes_are_those_of_the_values_and_alike(function):
    mean, variance = SCALE * MEANS, (SCALE * SPREADS) ** 2
    ours, theirs = slopes(function, mean, variance)
    for place, (one, two) in enumerate(zip(ours, theirs, strict=True)):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, two, rtol=1e-10)
        step = 1e-4 * (variance if place else np.sqrt(variance))
        ends = [[mean, variance], [mean, variance]]
        ends[0][place], ends[1][place] = ends[0][place] + step, ends[1][place] - step
        rise = function(*ends[0]) - function(*ends[1])
        np.testing.assert_allclose(2 * step * one, rise, atol=1e-11, rtol=1e-5)


def test_divergences_in_single_precision_stay_finite_at_extremes():
    mean = torch.tensor([0.0, 1e-30, 1e10, -1e8], requires_grad=True)
    variance = torch.tensor([1e-30, 1e15, 1e-10, 1e-12], requires_grad=True)
    for value in (horseshoe(mean, variance, 0.01), log_uniform_divergence(mean, variance)):
        assert torch.isfinite(value).all()
        grads = torch.autograd.grad(value.sum(), (mean, variance))
        assert all(torch.isfinite(grad).all() for grad in grads)


def sample(host, prior, shape):
    """Draws of a prior, as arrays of NumPy."""
    arguments = (jax.random.key(0),) if host.name == "numpyro" else ()
    return np.asarray(prior.sample(*arguments, shape))


def test_draws_of_the_prior_and_of_its_hierarchy_have_the_density(host):
    """Both have the quantiles that the density integrates to."""
    prior, count = host.package.Horseshoe(SCALE), 20_000

    def model():
        return host.language.sample("w", prior.expand([count]).to_event(1))

    config = {"w": host.package.HorseshoeReparam()}
    reparam, seed = host.handlers.reparam, host.handlers.seed
    hierarchy = np.asarray(seed(reparam(model, config=config), 0)())
    levels = 0.1, 0.5, 1.0, 4.0
    for draws in (sample(host, prior, (count,)), hierarchy):
        for w in levels:
            below = 2 * integrate.quad(lambda x: np.exp(log_density(x)), 0, w, points=[1e-3])[0]
            error = 5 * math.sqrt(below * (1 - below) / count)
            assert np.mean(np.abs(draws) < SCALE * w) == pytest.approx(below, abs=error)
        assert np.mean(draws > 0) == pytest.approx(0.5, abs=0.02)


def regression(host, prior):
    def model(x, y=None):
        weight = host.language.sample("weight", prior.expand([3]).to_event(1))
        host.observe(x, host.dist.Normal(x @ weight, 0.3), y)

    return model


def loss_of(host, prior, objective, guide=None):
    model = regression(host, prior)
    guide = guide or host.package.DVIGuide(init_scale=0.2)
    params = started(host, model, guide, host.x, host.y)
    if host.name == "numpyro":
        key = jax.random.key(0)
        return by_numpy(lambda p: objective.loss(key, p, model, guide, host.x, host.y))(*params)
    return objective.loss(model, guide, host.x, host.y)


@pytest.mark.parametrize("name", ["Horseshoe", "LogUniform"])
def test_the_loss_has_the_divergence_in_closed_form(host, name):
    """A Normal prior of the same expected log density gives the same loss."""
    prior = getattr(host.package, name)()
    guide = host.package.DVIGuide(
        init_loc_fn=lambda site=None: host.array([0.3, -1.0, 0.0]), init_scale=0.2
    )
    losses = [
        float(loss_of(host, other, host.package.DeterministicELBO(), guide))
        for other in (prior, host.dist.Normal(0.0, 1.0))
    ]
    mean, variance = host.array([0.3, -1.0, 0.0]), host.array([0.04] * 3)
    normal = (-0.5 * (math.log(2 * math.pi) + np.asarray(mean) ** 2 + 0.04)).sum()
    expected = normal - float(prior.expected_log_prob(mean, variance).sum())
    assert losses[0] - losses[1] == pytest.approx(expected, abs=2e-3)


def test_the_log_uniform_is_refused_where_it_needs_a_density(host):
    prior, reason = host.package.LogUniform(), r"improper.*Horseshoe\(scale\)"
    with pytest.raises(NotImplementedError, match=reason):
        sample(host, prior, (2,))
    with pytest.raises(UnsupportedMoments, match=reason):
        prior.log_prob(host.array([0.5]))
    with pytest.raises(UnsupportedMoments, match=reason):
        loss_of(host, prior, host.language.infer.Trace_ELBO())


@IN_PYRO
def test_sampled_losses_take_the_divergence_of_the_log_uniform(host):
    prior, objective = host.package.LogUniform(), host.package.DeterministicELBO
    guide = host.package.DVIGuide(init_loc_fn=lambda site=None: host.array([0.9, -1.9, 0.4]))
    exact = loss_of(host, prior, objective(), guide)
    draws = objective(propagation="sampled", num_particles=2000)
    assert loss_of(host, prior, draws, guide) == pytest.approx(exact, abs=0.5)


@IN_PYRO
@pytest.mark.parametrize("name", ["Horseshoe", "LogUniform"])
def test_masks_that_put_weights_at_the_pole_are_refused(host, name):
    guide = host.package.MCDropoutGuide(p=0.1)
    with pytest.raises(UnsupportedMoments, match=r"(?s)infinite at zero.*noise='gaussian'"):
        loss_of(host, getattr(host.package, name)(), host.package.DeterministicELBO(), guide)


def test_wrong_scales_and_sites_are_refused(host):
    with pytest.raises(ValueError, match=r"scale=-1.0 must be positive"):
        host.package.Horseshoe(-1.0)
    config = {"obs": host.package.HorseshoeReparam()}
    model = host.handlers.seed(regression(host, host.dist.Normal(0.0, 1.0)), 0)
    with pytest.raises(TypeError, match="site 'obs' is a Normal"):
        host.handlers.reparam(model, config=config)(host.x, host.y)
