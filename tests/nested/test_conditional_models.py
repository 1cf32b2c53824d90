"""Models given their hyperparameters: the hosts agree, and expectations are those of quadrature."""

from unittest.mock import patch

import numpy as np
import pytest
from scipy.special import expit, gammaln

from moment_calculus import UnsupportedMoments
from moment_inference import nested as parts
from moment_inference.nested.given.selection import select
from numpyro_moments.response.nested import nested as in_numpyro
from pyro_moments.response.nested import nested as in_pyro
from tests.checks.marks import IN_PYRO
from tests.nested.models import (
    COUNTS,
    SEEN,
    X,
    intercepts,
    nested_model,
    nested_models,
    scattered,
    walk,
)

POINTS = 3
MODELS = {
    ("concentration", "shares"): (scattered, X, COUNTS),
    ("step", "noise"): (walk, X.ravel()),
}


def conditional(nested, over=None):
    """The model given the hyperparameters that are selected, and their points."""
    chosen = select(nested, over)
    size = sum(nested.latent[name].size for name in chosen.hyperparameters)
    points = 0.4 * np.random.default_rng(1).normal(size=(POINTS, size))
    return nested.given(chosen.hyperparameters, chosen.field, chosen.likelihoods), points


def moments(count, zero=False):
    """Means and variances of predictors."""
    generator = np.random.default_rng(2)
    mean, variance = generator.normal(size=(2, POINTS, count))
    return mean, np.abs(variance) * (not zero)


def functions(model, theta):
    """What a model given its hyperparameters computes, by name."""
    generator = np.random.default_rng(3)
    field, directions = generator.normal(size=(2, POINTS, model.size))
    value, slope, offset = model.at_zero(theta)
    densities = model.densities(theta, field)
    return {
        **densities,
        "prior": model.log_prior(theta),
        "predictors": model.predictors(theta, field),
        "value": value,
        "slope": slope,
        "offset": offset,
        "curvature": model.curvature(theta, directions),
        "slopes": model.slopes(theta, directions),
        "expected": model.expected(theta, *moments(offset.shape[1])),
        "without variance": model.expected(theta, *moments(offset.shape[1], zero=True)),
        "higher": model.higher(theta, *moments(offset.shape[1])),
    }


@pytest.mark.parametrize(("hyperparameters", "case"), MODELS.items(), ids=["counts", "Gaussian"])
def test_both_hosts_agree(hyperparameters, case):
    one, other = nested_models(*case)
    assert one.latent == other.latent
    assert select(one, None) == select(other, None)
    assert select(one, None).hyperparameters == hyperparameters
    expected, found = (functions(*conditional(nested)) for nested in (one, other))
    assert expected.keys() == found.keys()
    for key, value in found.items():
        assert value.dtype == np.float64
        assert value.shape == expected[key].shape
        np.testing.assert_allclose(value, expected[key], rtol=1e-8, atol=1e-8, err_msg=key)


def quadrature(function, mean, variance):
    """The expectation of a function of Gaussians."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    points = mean[..., None] + np.sqrt(variance)[..., None] * nodes
    return function(points) @ (weights / weights.sum())


def derivatives(kind, y):
    """A log likelihood with its derivatives by the predictor, to the fifth."""
    if kind == "counts":
        first = lambda eta: y * eta - np.exp(eta) - gammaln(y + 1)  # noqa: E731
        return [first, lambda eta: y - np.exp(eta), *[lambda eta: -np.exp(eta)] * 4]
    slope = lambda p: p * (1 - p)  # noqa: E731
    return [
        lambda eta: y % 2 * eta - np.logaddexp(0, eta),
        lambda eta: y % 2 - expit(eta),
        lambda eta: -slope(expit(eta)),
        lambda eta: -slope(expit(eta)) * (1 - 2 * expit(eta)),
        lambda eta: -slope(expit(eta)) * (1 - 6 * slope(expit(eta))),
        lambda eta: -slope(expit(eta)) * (1 - 2 * expit(eta)) * (1 - 12 * slope(expit(eta))),
    ]


@IN_PYRO
@pytest.mark.parametrize("kind", ["counts", "binary"])
def test_expected_derivatives_are_those_of_quadrature(host, kind):
    model, theta = conditional(nested_model(host, intercepts(kind), X, COUNTS))
    mean, variance = moments(X.size)
    found = np.concatenate(
        [model.expected(theta, mean, variance), model.higher(theta, mean, variance)], 1
    )
    weights = 2.5 * SEEN.ravel()
    for order, function in enumerate(derivatives(kind, COUNTS.ravel()[:, None])):
        exact = weights * quadrature(function, mean, variance)
        np.testing.assert_allclose(found[:, order], exact, rtol=1e-6, atol=1e-6)


@IN_PYRO
def test_a_field_is_quadratic_and_its_predictors_are_linear(host):
    model, theta = conditional(nested_model(host, scattered, X, COUNTS))
    field = np.random.default_rng(4).normal(size=(POINTS, model.size))
    value, slope, offset = model.at_zero(theta)
    bend = np.einsum("gkd,gd->gk", model.curvature(theta, np.eye(model.size)), field)
    quadratic = value + ((slope - bend / 2) * field).sum(1)
    np.testing.assert_allclose(quadratic, model.densities(theta, field)["effect"])
    linear = offset + np.einsum("gdn,gd->gn", model.slopes(theta, np.eye(model.size)), field)
    np.testing.assert_allclose(linear, model.predictors(theta, field), atol=1e-12)


def exposed(reads_values):
    """Counts whose rate has a factor that is a hyperparameter."""

    def make(host):
        dist, sample = host.dist, host.language.sample

        def model(y):
            factor = sample("factor", dist.LogNormal(0.0, 1.0))
            spread = sample("spread", dist.HalfNormal(1.0))
            if reads_values and float(spread) < 0:
                raise ValueError
            with host.language.plate("groups", len(y)):
                effect = sample("effect", dist.Normal(0.0, spread))
                sample("y", dist.Poisson(factor * host.np.exp(effect)), obs=y)

        return model

    return make


@IN_PYRO
@pytest.mark.parametrize("reads_values", [False, True], ids=["by vmap", "one by one"])
def test_points_are_not_mixed_up(host, reads_values):
    y = COUNTS.ravel()
    model, theta = conditional(nested_model(host, exposed(reads_values), y), ["factor", "spread"])
    mean, variance = moments(y.size)
    log_factor = theta[:, :1]
    rate = np.exp(log_factor + mean + variance / 2)
    found = model.expected(theta, mean, variance)
    np.testing.assert_allclose(found[:, 0], y * (log_factor + mean) - rate - gammaln(y + 1))
    np.testing.assert_allclose(found[:, 1], y - rate)
    np.testing.assert_allclose(model.higher(theta, mean, variance)[:, 2], -rate)
    precision = model.curvature(theta, np.ones((1, y.size)))[:, 0]
    np.testing.assert_allclose(precision, np.exp(-2 * theta[:, 1:]) + 0 * precision)


@IN_PYRO
def test_sites_are_placed_on_their_supports(host):
    nested = nested_model(host, scattered, X, COUNTS)
    points = np.random.default_rng(5).normal(size=(6, 3))
    values = nested.values(["concentration", "shares"], points)
    np.testing.assert_allclose(values["concentration"], np.exp(points[:, 0]))
    assert values["shares"].shape == (6, 3)
    np.testing.assert_allclose(values["shares"].sum(1), 1)
    transform = nested.transform("concentration")
    np.testing.assert_allclose(transform.inverse(transform.forward(points)), points)
    np.testing.assert_allclose(transform.log_slope(points), points)
    assert nested.transform("shares") is None  # which mixes its elements
    np.testing.assert_allclose(
        nested.unconstrained({k: v[2] for k, v in values.items()}), points[2]
    )


def two_predictors(host):
    """Locations and log scales of their own."""

    def model(y):
        loc, log_scale = (
            host.language.sample(name, host.dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
            for name in ("loc", "log scale")
        )
        fn = host.dist.Normal(loc, host.np.exp(log_scale)).to_event(1)
        host.language.sample("y", fn, obs=y)

    return model


def classes(host):
    """Classes by the same logits."""

    def model(y):
        logits = host.language.sample("logits", host.dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        fn = host.dist.Categorical(logits=logits + host.np.zeros((len(y), 3)))
        host.language.sample("y", fn, obs=y)

    return model


@pytest.mark.parametrize("make", [two_predictors, classes])
def test_observations_have_one_predictor(host, make):
    nested = nested_model(host, make, np.arange(12) % 3)
    model = nested.given((), tuple(nested.latent), ("y",))
    with pytest.raises(UnsupportedMoments, match="no functions of one linear predictor"):
        model.predictors(np.zeros((2, 0)), np.zeros((2, model.size)))


def test_data_keep_their_double_precision(host):
    nested = {"numpyro": in_numpyro, "pyro": in_pyro}[host.name]
    with patch.object(parts.Inference, "of") as infer:
        nested(walk(host), host.array(X.ravel()) if host.name == "pyro" else X.ravel())
    (y,) = infer.call_args.args[0].args
    np.testing.assert_array_equal(np.asarray(y), X.ravel())
