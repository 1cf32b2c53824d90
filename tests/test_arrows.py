"""The Gaussian guide with blocks of plates or chains: the optimum is that of one block."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

import numpyro_moments
import pyro_moments
from moment_calculus import UnsupportedMoments
from moment_calculus.values import Propagation
from moment_guides.families import arrow, gaussian
from tests.cases.hosts import models

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

HOSTS = {
    "pyro": (pyro_moments, models.PYRO, torch.tensor),
    "numpyro": (numpyro_moments, models.NUMPYRO, jnp.asarray),
}
RANDOM = np.random.default_rng(0)
GROUPS, ITEMS, ROWS = 6, 4, 40
GROUP, ITEM = RANDOM.integers(GROUPS, size=ROWS), RANDOM.integers(ITEMS, size=ROWS)
X, ZEROS = RANDOM.normal(size=ROWS), np.zeros(GROUPS - 1)
Y = RANDOM.poisson(np.exp(0.3 + 0.5 * RANDOM.normal(size=GROUPS)[GROUP] + 0.2 * X))


def pairs(host, y):
    """Intercepts and slopes of groups, whose mean and spread are shared."""
    mean = host.sample("mean", host.dist.Normal(0.0, 1.0))
    spread = host.sample("spread", host.dist.HalfNormal(1.0))
    with host.plate("groups", GROUPS):
        intercept = host.sample("intercept", host.dist.Normal(mean, spread))
        slope = host.sample("slope", host.dist.Normal(0.0, 1.0))
    with host.plate("data", ROWS):
        rate = intercept[GROUP] + slope[GROUP] * host.array(X)
        host.sample("y", host.dist.Poisson(host.np.exp(rate)), obs=y)


def events(host, y):
    """The same as vectors, with a scale of each of the two."""
    with host.plate("groups", GROUPS):
        scale = host.sample("scale", host.dist.LogNormal(0.0, 0.5))
        both = host.sample("both", host.dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with host.plate("data", ROWS):
        rate = both[..., 0][GROUP] + both[..., 1][GROUP] * host.array(X)
        host.sample("y", host.dist.Normal(rate, scale[GROUP]), obs=y)


def nested(host, y):
    """Effects of items in groups, and of groups."""
    spread = host.sample("spread", host.dist.HalfNormal(1.0))
    with host.plate("groups", GROUPS):
        group = host.sample("group", host.dist.Normal(0.0, 1.0))
        with host.plate("items", ITEMS):
            item = host.sample("item", host.dist.Normal(group, spread))
    with host.plate("data", ROWS):
        host.sample("y", host.dist.Poisson(host.np.exp(item[ITEM, GROUP])), obs=y)


def crossed(host, y):
    """Effects of items and of groups: given those of the items, groups are independent."""
    with host.plate("groups", GROUPS):
        group = host.sample("group", host.dist.Normal(0.0, 1.0))
    with host.plate("items", ITEMS):
        item = host.sample("item", host.dist.Normal(0.0, 1.0))
    with host.plate("data", ROWS):
        host.sample("y", host.dist.Poisson(host.np.exp(item[ITEM] + group[GROUP])), obs=y)


def vectors(host, y):
    """Effects of groups without a plate."""
    mean = host.sample("mean", host.dist.Normal(0.0, 1.0))
    prior = host.dist.Normal(0.0, 1.0).expand([GROUPS]).to_event(1)
    effect = host.sample("effect", prior)
    with host.plate("data", ROWS):
        host.sample("y", host.dist.Poisson(host.np.exp(mean + effect[GROUP])), obs=y)


def walk(host, y):
    """Steps of a walk, which are dependent given the rest."""
    with host.plate("steps", GROUPS):
        step = host.sample("step", host.dist.Normal(0.0, 1.0))
    level = host.np.cumsum(step, 0)
    with host.plate("data", ROWS):
        host.sample("y", host.dist.Poisson(host.np.exp(level[GROUP])), obs=y)


def shared_mean(host, y):
    """Effects of groups around a mean."""
    mean = host.sample("mean", host.dist.Normal(0.0, 1.0))
    with host.plate("groups", GROUPS):
        effect = host.sample("effect", host.dist.Normal(mean, 1.0))
    with host.plate("data", ROWS):
        host.sample("y", host.dist.Poisson(host.np.exp(effect[GROUP])), obs=y)


def local_level(host, y):
    """Levels of which each leans on the one before, and on a scale."""
    spread = host.sample("spread", host.dist.HalfNormal(1.0))
    level = host.sample("level", host.dist.Normal(0.0, 2.0).expand([GROUPS]).to_event(1))
    with host.plate("changes", GROUPS - 1):
        change = host.dist.Normal(level[1:] - level[:-1], spread)
        host.sample("change", change, obs=host.array(ZEROS))
    with host.plate("data", ROWS):
        host.sample("y", host.dist.Poisson(host.np.exp(level[GROUP])), obs=y)


def trend(host, y):
    """Levels and slopes, each pair of which leans on the one before, and levels of items."""
    with host.plate("items", 2):
        item = host.sample("item", host.dist.Normal(0.0, 1.0))
    with host.plate("times", GROUPS):
        level = host.sample("level", host.dist.Normal(0.0, 2.0))
        slope = host.sample("slope", host.dist.Normal(0.0, 1.0))
    with host.plate("changes", GROUPS - 1):
        grown = level[:-1] + slope[:-1]
        host.sample("levels", host.dist.Normal(level[1:] - grown, 0.3), obs=host.array(ZEROS))
        host.sample("slopes", host.dist.Normal(slope[1:] - slope[:-1], 0.5), obs=host.array(ZEROS))
    with host.plate("data", ROWS):
        rate = level[GROUP] + item[ITEM // 2]
        host.sample("y", host.dist.Poisson(host.np.exp(rate)), obs=y)


def curve(host, y):
    """Levels of which each leans on the two before."""
    level = host.sample("level", host.dist.Normal(0.0, 1.0).expand([GROUPS + 1]).to_event(1))
    bends = level[2:] - 2 * level[1:-1] + level[:-2]
    with host.plate("bends", GROUPS - 1):
        host.sample("bend", host.dist.Normal(bends, 0.3), obs=host.array(ZEROS))
    with host.plate("data", ROWS):
        host.sample("y", host.dist.Poisson(host.np.exp(level[GROUP])), obs=y)


# the plate that has blocks of its own, their number and size, and whether they are a chain
MODELS = {
    pairs: ("groups", (GROUPS, 2), False),
    events: ("groups", (GROUPS, 3), False),
    nested: ("groups", (GROUPS, 1 + ITEMS), False),
    crossed: ("groups", (GROUPS, 1), False),
    vectors: ("of 6 elements", (GROUPS, 1), False),
    local_level: ("of 6 elements", (GROUPS, 1), True),
    trend: ("times", (GROUPS, 2), True),
    curve: ("of 7 elements", (3, 2), True),
}


def fitted(name, model, monkeypatch, most, **others):
    """A fit of a model, of one block if there are at most so many coordinates."""
    package, host, array = HOSTS[name]
    host.array = array
    for module in (arrow, gaussian):
        monkeypatch.setattr(module, "MAX_DENSE", most)
    options = {"method": "newton", "by_draws": False, "progress_bar": False, **others}
    guide, y = package.GaussianGuide(init_scale=0.3), array(Y.astype(float))
    return package.fit(partial(model, host), guide, y, **options)


CASES = [("pyro", model) for model in MODELS] + [("numpyro", nested), ("numpyro", trend)]


@pytest.mark.parametrize(("name", "model"), CASES)
def test_the_optimum_is_that_of_one_block(name, model, monkeypatch):
    whole = fitted(name, model, monkeypatch, 500)
    fit = fitted(name, model, monkeypatch, ITEMS + 2)
    assert fit.converged
    plates = [(plate.name, plate.places.shape, plate.is_chain) for plate in fit.guide.vector.plates]
    assert plates == [MODELS[model]]
    np.testing.assert_allclose(fit.loss, whole.loss, atol=1e-6)
    (mean, covariance), (expected, other) = (joint(name, each) for each in (fit, whole))
    scale = np.sqrt(np.diagonal(other))
    np.testing.assert_allclose((mean - expected) / scale, 0, atol=1e-3)
    np.testing.assert_allclose((covariance - other) / np.outer(scale, scale), 0, atol=1e-3)


def joint(name, fit):
    """The mean and the covariance of all coordinates."""
    posterior = fit.guide.get_posterior(*[fit.params] * (name == "numpyro"))
    with torch.no_grad():
        return np.asarray(posterior.mean), np.asarray(posterior.covariance_matrix)


@pytest.mark.parametrize("name", HOSTS)
def test_dependent_elements_are_no_blocks(name, monkeypatch):
    with pytest.raises(UnsupportedMoments, match="elements of plate 'steps' depend on each other"):
        fitted(name, walk, monkeypatch, 4)


@pytest.mark.parametrize("name", HOSTS)
def test_an_effect_and_its_mean_lean_on_each_other_backwards(name, monkeypatch):
    """Elements of a plate share a scalar: their covariance with it counts, of blocks or not."""
    package, host, array = HOSTS[name]
    for most in (500, 3):
        fit = fitted(name, shared_mean, monkeypatch, most)
        model, y = partial(shared_mean, host), array(Y.astype(float))
        losses = [
            loss_of(package, name, model, fit, y, covariance) for covariance in ("full", "backward")
        ]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-12)


def loss_of(package, name, model, fit, y, covariance):
    objective = package.DeterministicELBO(covariance=covariance)
    if name == "pyro":
        return objective.loss(model, fit.guide, y)
    return objective.loss(jax.random.key(0), fit.params, model, fit.guide, y)


@pytest.mark.parametrize("name", HOSTS)
def test_blocks_are_found_again_in_a_file(name, monkeypatch, tmp_path):
    package, host, array = HOSTS[name]
    fit = fitted(name, shared_mean, monkeypatch, 3)
    model, y = partial(shared_mean, host), array(Y.astype(float))
    package.save(tmp_path / "fit", model, fit, y)
    loaded = package.load(tmp_path / "fit", model, package.GaussianGuide(), y)
    assert len(loaded.guide.vector.plates) == 1
    for ours, theirs in zip(joint(name, loaded), joint(name, fit), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize(("name", "model"), [("pyro", pairs), ("pyro", trend), ("numpyro", trend)])
def test_draws_and_densities_are_those_of_the_joint_normal(name, model, monkeypatch):
    fit = fitted(name, model, monkeypatch, 3)
    posterior = fit.guide.get_posterior(*[fit.params] * (name == "numpyro"))
    mean, covariance = joint(name, fit)
    noise = np.random.default_rng(0).normal(size=(4000, len(mean)))
    with torch.no_grad():
        draws = np.asarray(posterior.image(HOSTS[name][2](noise)))
        found = np.asarray(posterior.log_prob(HOSTS[name][2](draws[:5])))
    np.testing.assert_allclose(found, multivariate_normal(mean, covariance).logpdf(draws[:5]))
    scale = np.sqrt(np.diagonal(covariance))
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean) / scale, 5 / np.sqrt(4000))
    error = (np.cov(draws.T) - covariance) / np.outer(scale, scale)
    assert np.abs(error).max() < 5 * np.sqrt(2 / 4000)
    with torch.no_grad():
        entropy = float(posterior.entropy())
        value = posterior.value("latent", Propagation())
        products = value.step.own(value).times(HOSTS[name][2](noise[:3]))
    np.testing.assert_allclose(products, noise[:3] @ covariance, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(entropy, multivariate_normal(mean, covariance).entropy())


def unknown_link(host, y):
    """Effects of groups, and counts by a function without a rule."""
    with host.plate("groups", GROUPS):
        effect = host.sample("effect", host.dist.Normal(0.0, 1.0))
    with host.plate("data", ROWS):
        rate = effect[GROUP]
        host.sample("y", host.dist.Poisson(host.np.exp(rate - host.np.sinc(rate))), obs=y)


@pytest.mark.parametrize("name", HOSTS)
def test_held_draws_are_of_blocks_too(name, monkeypatch):
    fits = [
        fitted(name, unknown_link, monkeypatch, most, unsupported="held draws") for most in (500, 3)
    ]
    assert fits[1].guide.vector.plates
    np.testing.assert_allclose(fits[1].loss, fits[0].loss, atol=0.05)
