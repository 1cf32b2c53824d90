"""Training by one verb, in both hosts."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as numpyro_dist
import pyro
import pyro.distributions as pyro_dist
import pytest
import torch

import numpyro_moments
import pyro_moments

rng = np.random.default_rng(1)
X = rng.normal(size=(30, 3)) * [1.0, 1e3, 1e-2]
SLOPES = np.array([1.0, -2e-3, 50.0])
Y = X @ SLOPES + 0.5 * rng.normal(size=30)
PRIOR = np.array([10.0, 1.0, 1e3])
LABELS = (X @ SLOPES > 0).astype(float)
DETERMINISTIC = ["newton", "lbfgs"]


def numpyro_linear(x, y):
    slopes = numpyro.sample("slopes", numpyro_dist.Normal(0.0, PRIOR).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("obs", numpyro_dist.Normal(x @ slopes, 0.5), obs=y)


def pyro_linear(x, y):
    prior = torch.tensor(PRIOR, dtype=x.dtype)
    slopes = pyro.sample("slopes", pyro_dist.Normal(0.0, prior).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("obs", pyro_dist.Normal(x @ slopes, 0.5), obs=y)


def numpyro_logistic(x, y):
    slopes = numpyro.sample("slopes", numpyro_dist.Normal(0.0, PRIOR).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("obs", numpyro_dist.Bernoulli(logits=x @ slopes), obs=y)


def pyro_logistic(x, y):
    prior = torch.tensor(PRIOR, dtype=x.dtype)
    slopes = pyro.sample("slopes", pyro_dist.Normal(0.0, prior).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("obs", pyro_dist.Bernoulli(logits=x @ slopes), obs=y)


HOSTS = {
    "numpyro": (numpyro_moments, jnp.asarray, numpyro_linear, numpyro_logistic),
    "pyro": (pyro_moments, torch.tensor, pyro_linear, pyro_logistic),
}


@pytest.fixture(params=HOSTS)
def host(request):
    pyro.clear_param_store()
    torch.manual_seed(0)
    return request.param


def trained(host, which="linear", y=Y, **options):
    """A fit, and the locations and scales of its guide."""
    package, array, *models = HOSTS[host]
    model = models[which == "logistic"]
    data = (X, y) if host == "numpyro" else (array(X).float(), array(y).float())
    fit = package.fit(model, package.DVIGuide(), *data, by_draws=False, **options)
    loc, scale = (
        next(value for name, value in fit.params.items() if name.endswith(suffix))
        for suffix in (
            ("slopes_auto_loc", "slopes_auto_scale")
            if host == "numpyro"
            else ("locs.slopes", "scales.slopes")
        )
    )
    return fit, np.asarray(loc), np.asarray(scale)


@pytest.mark.parametrize("method", DETERMINISTIC)
def test_a_conjugate_posterior_is_found(host, method):
    """The mean of the exact posterior, and the conditional standard deviations."""
    fit, loc, scale = trained(host, method=method, float64=True)
    precision = X.T @ X / 0.25 + np.diag(PRIOR**-2.0)
    exact = np.linalg.solve(precision, X.T @ Y / 0.25)
    assert fit.converged, fit.reason
    assert loc.dtype == np.float64
    # single-precision data in Pyro, rounded before they are doubled
    np.testing.assert_allclose(loc, exact, rtol=1e-4)
    np.testing.assert_allclose(scale, np.diag(precision) ** -0.5, rtol=1e-4)
    assert fit.steps == len(fit.losses) - 1 <= 110
    assert fit.loss == fit.losses[-1] <= min(fit.losses) + 1e-9
    assert set(fit.seconds) == {"preparing", "fitting"}
    if method == "newton":
        assert fit.decrement <= 1e-9


MANY = 600  # slopes, whose locations and scales are more than a dense Hessian is taken of
WIDE = rng.normal(size=(900, MANY)) * np.geomspace(1e-2, 1e2, MANY)
HEIGHTS = WIDE @ (rng.normal(size=MANY) / np.geomspace(1e-2, 1e2, MANY)) + rng.normal(size=900)


def numpyro_wide(x, y):
    slopes = numpyro.sample("slopes", numpyro_dist.Normal(0.0, 10.0).expand([MANY]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("obs", numpyro_dist.Normal(x @ slopes, 1.0), obs=y)


def pyro_wide(x, y):
    ten = torch.tensor(10.0, dtype=x.dtype)
    slopes = pyro.sample("slopes", pyro_dist.Normal(0.0, ten).expand([MANY]).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("obs", pyro_dist.Normal(x @ slopes, 1.0), obs=y)


def test_beyond_a_dense_hessian_newton_finds_the_conjugate_posterior(host):
    package, array, *_ = HOSTS[host]
    model = numpyro_wide if host == "numpyro" else pyro_wide
    data = (WIDE, HEIGHTS) if host == "numpyro" else (array(WIDE), array(HEIGHTS))
    options = {"method": "newton", "float64": True, "by_draws": False}
    fit = package.fit(model, package.DVIGuide(), *data, **options)
    loc = np.asarray(next(value for name, value in fit.params.items() if "loc" in name))
    exact_precision = WIDE.T @ WIDE + np.eye(MANY) / 100
    exact = np.linalg.solve(exact_precision, WIDE.T @ HEIGHTS)
    deviations = np.diag(exact_precision) ** -0.5
    assert fit.converged, fit.reason
    assert fit.decrement <= 1e-9
    np.testing.assert_allclose(loc / deviations, exact / deviations, atol=1e-3)


def test_both_hosts_and_methods_agree_on_a_logistic_regression():
    pyro.clear_param_store()
    torch.manual_seed(0)
    fits = [
        trained(host, "logistic", LABELS, method=method, float64=True)
        for host in HOSTS
        for method in DETERMINISTIC
    ]
    first = fits[0]
    for fit, loc, scale in fits:
        assert fit.converged
        assert fit.loss == pytest.approx(first[0].loss, abs=1e-5)
        np.testing.assert_allclose(loc, first[1], rtol=1e-2)
        np.testing.assert_allclose(scale, first[2], rtol=1e-2)


def test_adam_lowers_the_loss(host):
    fit, _, _ = trained(host, method="adam", steps=30, learning_rate=1e-3)
    assert (fit.steps, fit.converged, fit.reason) == (30, False, "ran 30 steps")
    assert fit.losses[-1] < fit.losses[0]


def test_single_precision_converges(host):
    fit, loc, _ = trained(host, method="newton")
    exact, _, _ = trained(host, method="newton", float64=True)
    assert fit.converged
    assert loc.dtype == np.float32
    assert fit.loss == pytest.approx(exact.loss, rel=1e-5)


def test_a_fit_goes_on_in_double_precision():
    """Parameters that are there already become doubles."""
    pyro.clear_param_store()
    guide = pyro_moments.DVIGuide()
    x, y = torch.tensor(X).float(), torch.tensor(Y).float()
    pyro_moments.fit(pyro_linear, guide, x, y, method="lbfgs", steps=3)
    fit = pyro_moments.fit(pyro_linear, guide, x, y, method="newton", float64=True)
    assert fit.decrement <= 1e-9
    assert all(value.dtype == torch.float64 for value in fit.params.values())
    assert all(value.dtype == torch.float64 for value in guide.parameters())


def test_double_precision_ends_with_the_fit(host):
    trained(host, method="lbfgs", float64=True, steps=3)
    assert torch.get_default_dtype() is torch.float32
    assert jnp.ones(()).dtype == jnp.float32


def test_a_noisy_loss_is_refused(host):
    package = HOSTS[host][0]
    drawn = package.DeterministicELBO(sample_sites=["slopes"])
    with pytest.raises(ValueError, match=r"not deterministic: .* and .* train by method='adam'"):
        trained(host, method="newton", objective=drawn)


def test_nothing_to_train_is_refused(host):
    package, array, *_ = HOSTS[host]
    language, distributions = (numpyro, numpyro_dist) if host == "numpyro" else (pyro, pyro_dist)

    def certain(y):
        with language.plate("data", len(y)):
            language.sample("obs", distributions.Normal(0.0, 1.0), obs=y)

    with pytest.raises(ValueError, match="no parameters: there is nothing to train"):
        package.fit(certain, package.DVIGuide(), array(Y), method="lbfgs")


def test_no_steps_are_refused(host):
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        trained(host, method="newton", steps=0)


@pytest.mark.parametrize("rank", ["AutoMultivariateNormal", "AutoLowRankMultivariateNormal"])
def test_guides_with_redundant_parameters_converge(rank):
    """The triangle above a Cholesky factor's, and rotations of a low-rank one."""
    pyro.clear_param_store()
    torch.manual_seed(0)
    guide = getattr(pyro.infer.autoguide, rank)(pyro_linear)
    x, y = torch.tensor(X).float(), torch.tensor(Y).float()
    fit = pyro_moments.fit(pyro_linear, guide, x, y, method="newton", float64=True)
    assert fit.converged
    assert np.isfinite(fit.decrement)
    assert fit.steps < 100


def test_an_unknown_method_is_refused(host):
    with pytest.raises(ValueError, match="one of adam, newton, lbfgs, got 'sgd'"):
        trained(host, method="sgd")


def test_the_host_s_own_guide_is_trained():
    pyro.clear_param_store()
    guide = pyro.infer.autoguide.AutoNormal(pyro_linear)
    x, y = torch.tensor(X).float(), torch.tensor(Y).float()
    fit = pyro_moments.fit(pyro_linear, guide, x, y, method="newton", float64=True)
    assert fit.converged
    assert fit.guide is guide
    assert set(fit.params) == {"AutoNormal.locs.slopes", "AutoNormal.scales.slopes"}
