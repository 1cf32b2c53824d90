"""Likelihoods with several random parameters, trained, and beside draws of the guide."""

import functools

import jax
import numpy as np
import pyro
import pytest
import torch

from tests.checks import small_programs
from tests.checks.carried import in_numpyro, loss_and_slopes
from tests.checks.trained import decrease
from tests.fitting.models import fresh

ROWS, DRAWS, ROUNDS = 40, 500, 20
rng = np.random.default_rng(0)
X = rng.normal(size=ROWS).astype(np.float32)
MEAN = 1 / (1 + np.exp(-0.7 * X))
POSITIVE = (np.exp(0.4 * X) * rng.weibull(1.7, ROWS) + 0.01).astype(np.float32)
CLASSES = np.digitize(X + rng.logistic(size=ROWS), [-1.0, 0.3, 1.5])
TRIALS = 12


def cut_points(host):
    normal = host.dist.Normal(0.0, 1.5).expand([3]).to_event(1)
    ordered = host.dist.transforms.OrderedTransform()
    return host.language.sample("cuts", host.dist.TransformedDistribution(normal, [ordered]))


def precision(host):
    return host.language.sample("precision", host.dist.Exponential(0.1))


def shape(host):
    return host.language.sample("shape", host.dist.LogNormal(0.0, 0.5))


def counted(host, values):
    """Counts and classes as the framework wants them."""
    return host.array(values.astype(np.float32 if host.name == "pyro" else np.int32))


def sigmoid(host, f):
    return 1 / (1 + host.np.exp(-f))


# By name: from the framework, the predictor and what was sampled first to the distribution;
# what is sampled first; and the observations.
LIKELIHOODS = {
    "ordered": (lambda host, f, cuts: host.dist.OrderedLogistic(f, cuts), cut_points, CLASSES),
    "Beta": (
        lambda host, f, k: host.dist.Beta(sigmoid(host, f) * k, (1 - sigmoid(host, f)) * k),
        precision,
        rng.beta(6 * MEAN, 6 * (1 - MEAN)).clip(0.01, 0.99).astype(np.float32),
    ),
    "BetaBinomial": (
        lambda host, f, k: host.dist.BetaBinomial(
            sigmoid(host, f) * k, (1 - sigmoid(host, f)) * k, TRIALS
        ),
        precision,
        rng.binomial(TRIALS, rng.beta(6 * MEAN, 6 * (1 - MEAN))),
    ),
    "Weibull": (lambda host, f, k: host.dist.Weibull(host.np.exp(f), k), shape, POSITIVE),
    "StudentT": (
        lambda host, f, k: host.dist.StudentT(2 + k, f, 0.5),
        shape,
        (X + 0.5 * rng.standard_t(4, ROWS)).astype(np.float32),
    ),
}
LIKELIHOODS["GammaPoisson"] = (
    lambda host, f, k: host.dist.GammaPoisson(k, k * host.np.exp(-f)),
    shape,
    rng.negative_binomial(3, 3 / (3 + np.exp(0.7 * X))),
)
LIKELIHOODS["ZeroInflatedPoisson"] = (
    lambda host, f, g: host.dist.ZeroInflatedDistribution(
        host.dist.Poisson(host.np.exp(f)), gate=sigmoid(host, g)
    ),
    lambda host: host.language.sample("gate", host.dist.Normal(0.0, 1.0)),
    rng.poisson(np.exp(0.7 * X)) * (rng.random(ROWS) < 0.6),
)


def program(host, name):
    """The model of a likelihood, its inputs and its observations."""
    family, first, y = LIKELIHOODS[name]

    def model(x, y=None):
        parameter = first(host)
        slope = host.language.sample("slope", host.dist.Normal(0.0, 1.0))
        with host.language.plate("rows", ROWS):
            return host.language.sample("y", family(host, slope * x, parameter), obs=y)

    is_count = y.dtype.kind == "i"
    return model, host.array(X), counted(host, y) if is_count else host.array(y)


@functools.cache
def fitted(name):
    """A fit in Pyro, and mean and standard error of 10 000 draws of Pyro's own ELBO."""
    host = fresh("pyro")
    model, *data = program(host, name)
    fit = host.fit(model, *data, method="newton", by_draws=False)
    elbo = pyro.infer.Trace_ELBO(DRAWS, max_plate_nesting=1, vectorize_particles=True)
    with torch.no_grad():
        losses = [elbo.loss(model, fit.guide, *data) for _ in range(ROUNDS)]
    return fit, np.mean(losses), np.std(losses) / (ROUNDS - 1) ** 0.5


def predicted(host, guide, params, model, x, y, **options):
    """Log densities of the observations."""
    given = (params,) if host.name == "numpyro" else ()
    return host.package.predict(model, guide, *given, x, **options)["y"].log_prob(y)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_loss_and_predictions_agree_with_draws(host, name):
    """NumPyro has its optimum where Pyro has it."""
    fit, value, error = fitted(name)
    program_of_host = model, *data = program(host, name)
    if host.name == "pyro":
        assert fit.converged
        guide, params, loss, keys = fit, None, fit.loss, {}
    else:
        guide, params = host.package.DVIGuide(), in_numpyro(fit.params)
        objective = host.package.DeterministicELBO()
        loss, slopes = loss_and_slopes(objective, model, guide, fit.params, *data)
        assert decrease(fit.params, slopes) < 1e-4
        keys = {"rng_key": jax.random.key(0)}
    assert error < 0.05
    assert abs(value - loss) < 4 * error + 1e-4 * abs(value)
    with small_programs.by_numpy():
        exact = predicted(host, guide, params, *program_of_host)
        options = {"propagation": "sampled", "num_particles": 4000, **keys}
        drawn = predicted(host, guide, params, *program_of_host, **options)
    np.testing.assert_allclose(exact, drawn, atol=0.05)


def test_cut_points_of_another_kind_are_refused(host):
    """Gaussian cut points may come in any order: a gap would be negative."""
    fresh(host.name)

    def model(y):
        cuts = host.language.sample("cuts", host.dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with host.language.plate("rows", ROWS):
            zero = host.array(np.zeros(ROWS, np.float32))
            fn = host.dist.OrderedLogistic(zero, cuts, validate_args=False)
            host.language.sample("y", fn, obs=y)

    with pytest.raises(host.package.UnsupportedMoments, match="no site with an ordered support"):
        host.fit(model, counted(host, CLASSES), steps=1)
