"""Draws at the end of a fit, and a product of two sites in a logit."""

import math

import numpy as np
import pytest

from tests.checks.marks import IN_PYRO
from tests.fitting.models import CURVE, INPUTS, network

rng = np.random.default_rng(4)
PERSONS, ITEMS = 40, 8
WHO, WHICH = (np.ravel(part) for part in np.indices((PERSONS, ITEMS)))
ABILITY, EASE = rng.normal(size=PERSONS), rng.normal(size=ITEMS)
ANSWERS = (rng.uniform(size=WHO.size) < 1 / (1 + np.exp(EASE[WHICH] - ABILITY[WHO]))) * 1.0


def two_parameters(host):
    """Item response theory: a product of two sites in a logit."""
    language, normal = host.language, host.dist.Normal

    def model(who, which, y):
        with language.plate("items", ITEMS):
            slope = language.sample("slope", normal(1.0, 0.5))
            level = language.sample("level", normal(0.0, 1.0))
        with language.plate("persons", PERSONS):
            ability = language.sample("ability", normal(0.0, 1.0))
        with language.plate("answers", len(y)):
            logits = slope[which] * ability[who] - level[which]
            language.sample("obs", host.dist.Bernoulli(logits=logits), obs=y)

    return model


def loss_of_answers(place, draws=4000):
    """The loss and its standard error by NumPy's draws, without the package."""
    generator, prior = np.random.default_rng(1), {"slope": (1.0, 0.5)}
    found, divergence = {}, 0.0
    for site, (loc, scale) in place.items():
        mean, sd = prior.get(site, (0.0, 1.0))
        ratio = (scale / sd) ** 2
        divergence += 0.5 * (ratio + ((loc - mean) / sd) ** 2 - 1 - np.log(ratio)).sum()
        found[site] = loc + scale * generator.normal(size=(draws, *loc.shape))
    logits = found["slope"][:, WHICH] * found["ability"][:, WHO] - found["level"][:, WHICH]
    losses = np.logaddexp(0, np.where(ANSWERS, -logits, logits)).sum(1) + divergence
    return losses.mean(), losses.std() / draws**0.5


@pytest.mark.filterwarnings("error::moment_calculus.errors.LossByDrawsWarning")
@IN_PYRO
def test_a_product_in_a_logit_is_close_to_its_draws(host):
    """Moments are off by less than one per cent: draws show it, nothing warns."""
    data = host.array(WHO), host.array(WHICH), host.array(ANSWERS.astype(np.float32))
    fit = host.fit(two_parameters(host), *data, method="lbfgs", progress_bar=False, by_draws=True)
    names = ("{}_auto_loc", "{}_auto_scale")
    if host.name == "pyro":
        names = ("DVIGuide.locs.{}", "DVIGuide.scales.{}")
    place = {
        site: [np.asarray(fit.params[name.format(site)], np.float64) for name in names]
        for site in ("slope", "level", "ability")
    }
    exact, noise = loss_of_answers(place)
    found = fit.by_draws
    assert abs(found.value - exact) < 4 * math.hypot(found.standard_error, noise)
    assert found.standard_error < 0.01 * fit.loss
    assert abs(fit.loss - exact) < 0.01 * fit.loss


OWN_GUIDES = ["AutoNormal", "AutoDelta", "AutoDiagonalNormal"]


@pytest.mark.parametrize("name", ["MCDropoutGuide", "TridiagonalGuide"])
@IN_PYRO
def test_other_guides_of_the_house(host, name):
    guide = getattr(host.package, name)()
    data = host.array(INPUTS), host.array(CURVE.astype(np.float32))
    model = network(host, lambda out: host.dist.Normal(out, 2.0))
    found = host.package.fit(model, guide, *data, steps=20, progress_bar=False).by_draws
    assert found.note == ""
    assert abs(found.value - found.loss) < 4 * found.standard_error + 0.01 * found.loss


@pytest.mark.parametrize("name", OWN_GUIDES)
@IN_PYRO
def test_guides_of_the_host(host, name):
    guide = getattr(host.autoguide, name)(host.regression)
    fit = host.package.fit(host.regression, guide, host.x, host.y, steps=40, progress_bar=False)
    found = fit.by_draws
    assert found.note == ""
    assert abs(found.value - found.loss) <= 4 * found.standard_error + 1e-4 * abs(found.loss)
