"""Distribution functions of counts, at means from 0.1 to 10⁴, against SciPy and sums."""

import dataclasses

import jax
import numpy as np
import pyro.distributions
import pytest
import scipy.special
import scipy.stats
import torch

import pyro_moments
from moment_calculus.numerics import incomplete
from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.numerics.incomplete import betainc
from moment_inference.criticism.calibration.calibration import calibration
from tests.criticism.predicted import predicted
from tests.response.models import doubles, fresh

MEANS = np.array([0.1, 2.0, 100.0, 1e4])
LEVELS = [1e-9, 0.05, 0.5, 0.95, 1 - 1e-9]
ODDS = MEANS / (MEANS + 3.0)
TRIALS = np.ceil(4 * MEANS)


def zero_inflated(base):
    law = lambda k: np.where(k < 0, 0, 0.2 + 0.8 * base.cdf(k))  # noqa: E731
    return law, lambda level: np.where(level <= 0.2, 0, base.ppf(np.clip(level - 0.2, 0, 1) / 0.8))


POISSON, NEGATIVE = scipy.stats.poisson(MEANS), scipy.stats.nbinom(3.0, 1 - ODDS)
BINOMIAL = scipy.stats.binom(TRIALS, MEANS / TRIALS)
GEOMETRIC = scipy.stats.geom(1 / (1 + MEANS), loc=-1)
# Names in Pyro and in NumPyro, the parameters by name, and SciPy's law.
FAMILIES = {
    "Poisson": ("Poisson", "Poisson", {"rate": MEANS}, POISSON),
    "negative binomial": (
        "NegativeBinomial",
        "NegativeBinomialLogits",
        {"total_count": np.full(4, 3.0), "logits": np.log(MEANS / 3)},
        NEGATIVE,
    ),
    "gamma-Poisson": (
        "GammaPoisson",
        "GammaPoisson",
        {"concentration": np.full(4, 3.0), "rate": 3 / MEANS},
        NEGATIVE,
    ),
    "binomial": (
        "Binomial",
        "BinomialProbs",
        {"total_count": TRIALS, "probs": MEANS / TRIALS},
        BINOMIAL,
    ),
    "geometric": ("Geometric", "GeometricProbs", {"probs": 1 / (1 + MEANS)}, GEOMETRIC),
    "zero-inflated": (
        "ZeroInflatedPoisson",
        "ZeroInflatedPoisson",
        {"gate": np.full(4, 0.2), "rate": MEANS},
        None,
    ),
}
NAMES = {"pyro": 0, "numpyro": 1}


def laws(name):
    law = FAMILIES[name][-1]
    return zero_inflated(POISSON) if law is None else (law.cdf, law.ppf)


@pytest.mark.parametrize("framework", NAMES)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_certain_parameters(framework, name, dtype):
    known = {key: part.astype(dtype) for key, part in FAMILIES[name][2].items()}
    cdf, quantile = laws(name)
    with jax.enable_x64(dtype == np.float64):
        found = predicted(framework, FAMILIES[name][NAMES[framework]], **known)
        single = dtype == np.float32
        values = quantile(0.3) + np.array([[-1.0], [0.0], [3.7]])
        tolerance = {"atol": 6e-3 if single else 1e-11}  # JAX has logarithms of factorials of 10⁴
        for value in values:
            np.testing.assert_allclose(to_numpy(found.cdf(value)), cdf(value), **tolerance)
        counts = to_numpy(found.quantile(LEVELS[1:4] if single else LEVELS), np.float64)
        if not single:
            wanted = np.stack([quantile(level) for level in LEVELS])
            np.testing.assert_array_equal(counts, wanted)
        assert (cdf(counts[-1]) >= LEVELS[3] - 1e-3).all()
    beyond = to_numpy(found.cdf(np.array([-0.5, np.inf, -np.inf, np.nan])))
    np.testing.assert_array_equal(beyond, [0, 1, 0, np.nan])


RANDOM = {
    "Poisson": lambda h, f: h.dist.Poisson(h.np.exp(f)),
    "gamma-Poisson": lambda h, f: h.dist.GammaPoisson(h.array(np.full(3, 3.0)), 3 * h.np.exp(-f)),
}


def answers(framework, family, closed):
    """Probabilities and quantiles where means of 0.2, 4 and 400 are known more or less."""
    host = fresh(framework)

    def model(y=None):
        with host.language.plate("data", 3):
            shift = host.language.sample("f", host.dist.Normal(0.0, 1.0))
            return host.language.sample("y", RANDOM[family](host, 3 + shift), obs=y)

    with doubles(host):
        y = host.array(np.array([0.0, 4.0, 400.0]))
        fit = host.package.fit(model, host.package.DVIGuide(), y, method="newton", by_draws=False)
        found = host.package.predict(model, fit.guide, *host.given(fit.params))["y"]
        if not closed:
            found._marginal = dataclasses.replace(found.marginal, cumulative=None)
        values = host.array(np.array([0.0, 3.0, 390.0]))
        return to_numpy(found.cdf(values)), to_numpy(found.quantile([1e-6, 0.05, 0.5, 0.999]))


@pytest.mark.parametrize("family", RANDOM)
def test_random_parameters_as_sums_of_probabilities(family):
    closed, summed = (answers("pyro", family, closed) for closed in (True, False))
    np.testing.assert_allclose(closed[0], summed[0], rtol=1e-7)
    np.testing.assert_array_equal(closed[1], summed[1])
    if family == "Poisson":
        other = answers("numpyro", family, True)
        np.testing.assert_allclose(closed[0], other[0], rtol=1e-6)
        np.testing.assert_array_equal(closed[1], other[1])


@pytest.mark.parametrize("framework", NAMES)
def test_coverage_is_that_of_the_intervals(framework):
    counts = np.random.default_rng(1).poisson(MEANS[:, None] * np.ones(50))
    found = predicted(framework, "Poisson", MEANS[:, None] * np.ones(50))
    coverage = calibration(found, counts).coverage([0.5, 0.9])
    for mass, expected, observed in zip(
        coverage.mass, coverage.expected, coverage.observed, strict=True
    ):
        low, high = map(to_numpy, found.interval(float(mass)))
        law = scipy.stats.poisson(MEANS[:, None])
        assert observed == ((low <= counts) & (counts <= high)).mean()
        assert expected == pytest.approx((law.cdf(high) - law.cdf(low - 1)).mean(), rel=1e-3)


class Doubled(pyro.distributions.Poisson):
    """Twice a Poisson count: a subclass with other probabilities."""

    def log_prob(self, value):
        inside = super().log_prob(torch.floor(value / 2))
        return torch.where(value % 2 == 0, inside, -torch.inf)


def test_a_subclass_of_the_user_is_summed():
    found = pyro_moments.Prediction("y", Doubled(torch.tensor([3.0])))
    assert found.cdf(torch.tensor(4.0)).item() == pytest.approx(scipy.stats.poisson(3.0).cdf(2))


def test_incomplete_beta_function_of_torch_and_its_gradient():
    grid = [
        part.ravel()
        for part in np.meshgrid([0.01, 1, 40, 3e4], [0.3, 2, 5e3], [1e-9, 0.2, 0.5, 0.9999])
    ]
    x = torch.tensor(grid[2], requires_grad=True)
    found = betainc(*map(torch.tensor, grid[:2]), x, 1 - x)
    np.testing.assert_allclose(found.detach(), scipy.special.betainc(*grid), rtol=1e-9, atol=1e-12)
    (slope,) = torch.autograd.grad(found.sum(), x)
    np.testing.assert_allclose(
        slope, scipy.stats.beta(*grid[:2]).pdf(grid[2]), rtol=1e-6, atol=1e-9
    )


def test_the_fraction_ends_for_many_arguments_together(monkeypatch):
    x = scipy.stats.beta(3.0, 1e4).ppf(np.linspace(1e-9, 1 - 1e-9, 5000))
    monkeypatch.setattr(incomplete, "MAX_TERMS", 100)
    found = betainc(torch.tensor(3.0), torch.tensor(1e4), torch.tensor(x), torch.tensor(1 - x))
    np.testing.assert_allclose(found, np.linspace(1e-9, 1 - 1e-9, 5000), rtol=1e-9)
