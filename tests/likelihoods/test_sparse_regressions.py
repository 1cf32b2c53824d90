"""A horseshoe regression of 20 columns, 5 of them real: the fit and NUTS switch off the same."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer import MCMC, NUTS

from numpyro_moments import HorseshoeReparam
from tests.checks.carried import loss_and_newton_step
from tests.checks.marks import IN_PYRO
from tests.checks.trained import trained
from tests.fitting.models import HOSTS, fresh
from tests.response.models import doubles

REAL = np.array([1.0, -1.0, 0.8, 1.5, -0.7])
SCALE, COLUMNS = 0.001, 20
FAMILIES = ["normal", "bernoulli", "poisson"]


def data(family):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600 if family == "bernoulli" else 200, COLUMNS))
    f = x[:, : len(REAL)] @ REAL
    draw = {
        "normal": lambda: f + rng.normal(size=len(f)),
        "bernoulli": lambda: 1.0 * rng.binomial(1, 1 / (1 + np.exp(-2 * f))),
        "poisson": lambda: 1.0 * rng.poisson(np.exp(f / 2)),
    }
    return x, draw[family]()


def regression(host, family):
    likelihood = {
        "normal": lambda f: host.dist.Normal(f, 1.0),
        "bernoulli": lambda f: host.dist.Bernoulli(logits=f),
        "poisson": lambda f: host.dist.Poisson(host.np.exp(f)),
    }[family]

    def model(x, y=None):
        prior = host.package.Horseshoe(SCALE).expand([COLUMNS]).to_event(1)
        f = x @ host.language.sample("weight", prior)
        host.observe(x, likelihood(f), y)

    return model


@functools.cache
def by_nuts():
    """Mean and standard deviation of each weight by NUTS on the hierarchy."""
    found = {}
    for family in FAMILIES:
        model = regression(HOSTS["numpyro"], family)
        hierarchy = numpyro.handlers.reparam(model, config={"weight": HorseshoeReparam()})
        with jax.enable_x64(True):
            kernel = NUTS(hierarchy, target_accept_prob=0.95)
            mcmc = MCMC(kernel, num_warmup=1000, num_samples=3000, progress_bar=False)
            mcmc.run(jax.random.key(0), *map(jnp.asarray, data(family)))
            weight = np.asarray(mcmc.get_samples()["weight"])
        found |= {f"{family} mean": weight.mean(0), f"{family} deviation": weight.std(0)}
    return found


def reference(family):
    """What is stored of it."""
    found = trained("horseshoe", "NUTS in NumPyro: 1000 steps, 3000 draws, key 0", by_nuts)
    return found[f"{family} mean"], found[f"{family} deviation"]


def fitted(host, family, **options):
    """Means and standard deviations of the weights at the optimum of a mean field, and the loss."""
    model, guide = regression(host, family), host.package.DVIGuide(**options)
    with doubles(host):
        arrays = [host.array(part) for part in data(family)]
        fit = host.package.fit(model, guide, *arrays, method="newton", by_draws=False)
    name = {"numpyro": "weight_auto_{}", "pyro": "DVIGuide.{}s.weight"}[host.name]
    return *(np.asarray(fit.params[name.format(part)]) for part in ("loc", "scale")), fit.loss


def carried(family):
    """The optimum of Pyro, which is one of NumPyro."""
    host, (mean, spread, stated) = HOSTS["numpyro"], fitted(fresh("pyro"), family, init_scale=0.5)
    params = {"DVIGuide.locs.weight": mean, "DVIGuide.scales.weight": spread}
    program = host.package.DeterministicELBO(), regression(host, family), host.package.DVIGuide()
    with doubles(host):
        arrays = [host.array(part) for part in data(family)]
        loss, decrease = loss_and_newton_step(*program, params, *arrays)
    assert loss == pytest.approx(stated, rel=1e-9)
    assert decrease < 1e-6
    return mean, spread, loss


@pytest.mark.trained
@pytest.mark.parametrize("family", FAMILIES)
def test_the_fit_switches_off_the_columns_that_nuts_does(host, family):
    found = carried(family) if host.name == "numpyro" else fitted(host, family, init_scale=0.5)
    (mean, spread, _), (expected, sd) = found, reference(family)
    real, rest = slice(0, len(REAL)), slice(len(REAL), COLUMNS)
    assert (np.abs(mean - expected)[real] < 0.25 * sd[real]).all()
    assert (np.abs(expected)[rest] < 0.25 * sd[rest]).all()
    assert (np.abs(mean)[rest] < 0.25 * spread[rest]).all()
    assert (np.abs(mean)[rest] < 0.25 * sd[rest]).all()
    assert (np.abs(mean)[real] > 3 * spread[real]).all()


@IN_PYRO
def test_a_start_at_zero_as_narrow_as_the_prior_stays_off(host):
    """The divergence has a local optimum there, that a wide start avoids."""
    best = fitted(host, "normal", init_scale=0.5)[-1]
    zeros = lambda site=None: host.np.zeros(COLUMNS)  # noqa: E731
    wide = fitted(host, "normal", init_loc_fn=zeros, init_scale=0.5)[-1]
    narrow = fitted(host, "normal", init_loc_fn=zeros, init_scale=SCALE)[-1]
    assert wide == pytest.approx(best, abs=1e-6)
    assert narrow > best + 50
