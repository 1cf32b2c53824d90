"""Every verb takes fits with held draws, of an angle whose posterior is known on a grid."""

import functools

import numpy as np
import pytest
from scipy.stats import norm

from tests.checks.marks import IN_PYRO
from tests.criticism.comparison.references import chains
from tests.criticism.containers.programs import doubles
from tests.fitting.models import fresh

X, NOISE = np.linspace(-1.0, 1.0, 8), 0.3
Y = np.arctan2(0.8, 2.0 + X) + NOISE * np.random.default_rng(0).normal(size=8)
GRID = np.linspace(-6.0, 6.0, 2001)
ROWS = norm.logpdf(Y[:, None], np.arctan2(GRID, 2.0 + X[:, None]), NOISE)


def weights(rows):
    """The posterior on the grid, by rows of the data."""
    density = np.exp(norm.logpdf(GRID) + ROWS[rows].sum(0))
    return density / density.sum()


WEIGHTS = weights(slice(None))
MEAN = WEIGHTS @ GRID
DEVIATION = (WEIGHTS @ GRID**2 - MEAN**2) ** 0.5


def angle(host):
    """Angles of points at the same unknown height."""
    sample, dist = host.language.sample, host.dist

    def model(x, y=None):
        height = sample("height", dist.Normal(0.0, 1.0))
        with host.language.plate("rows", len(x)):
            sample("obs", dist.Normal(host.np.arctan2(height, 2.0 + x), NOISE), obs=y)

    return model


@functools.cache
def fitted(name):
    host = fresh(name)
    with doubles(host):
        model, data = angle(host), (host.array(X), host.array(Y))
        options = {"method": "newton", "by_draws": False, "progress_bar": False}
        guide, held = host.package.GaussianGuide(), {"unsupported": "held draws"}
        return model, data, host.package.fit(model, guide, *data, **options, **held)


@pytest.fixture(autouse=True)
def _in_doubles(host):
    with doubles(host):
        yield


def test_linear_response(host):
    model, data, fit = fitted(host.name)
    assert fit.held.sites == ("obs",)
    response = host.package.linear_response(model, fit, *data)
    assert float(response.location("height")) == pytest.approx(MEAN, abs=0.1 * DEVIATION)
    assert float(response.standard_deviation("height")) == pytest.approx(DEVIATION, rel=0.1)


def test_leave_one_out(host):
    model, data, fit = fitted(host.name)
    others = [weights(np.arange(8) != row) for row in range(8)]
    exact = sum(np.log(part @ np.exp(row)) for part, row in zip(others, ROWS, strict=True))
    assert host.package.loo(model, fit, *data).elpd_loo == pytest.approx(exact, abs=0.1)


def test_diagnosis(host):
    model, data, fit = fitted(host.name)
    found = host.package.diagnose(model, fit, *data, verbose=False)
    assert {each.check: each.verdict.value for each in found.findings}["optimum"] == "good"


@IN_PYRO
def test_comparison_with_chains(host):
    model, data, fit = fitted(host.name)
    draws = np.random.default_rng(1).choice(GRID, size=(4, 1000), p=WEIGHTS)
    found = host.package.compare_with_nuts(model, fit, *data, reference=chains({"height": draws}))
    assert "GaussianGuide" in str(found)


def test_files(host, tmp_path):
    model, data, fit = fitted(host.name)
    fit.save(tmp_path / "fit")
    loaded = host.package.load(tmp_path / "fit", model, host.package.GaussianGuide(), *data)
    assert loaded.objective.held_draws == fit.held.number
    found, right = (host.package.linear_response(model, each, *data) for each in (loaded, fit))
    assert float(found.location("height")) == float(right.location("height"))
