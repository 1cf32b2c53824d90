"""The ELBO of a guide by dropout in both hosts, and predictions."""

import itertools

import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments
from tests.checks.marks import IN_PYRO
from tests.dropout.hosts import PRIOR, SCALE, X, Y, evaluated, network, value_of

P = 0.3
KEPT = 1 - P
FIRST, LAST = value_of("first", (3, 4)), value_of("last", (4,))
pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")


@pytest.mark.parametrize("noise", ["bernoulli", "gaussian", "dropconnect"])
def test_divergence_from_a_normal_prior(host, noise):
    """‖M‖²/(2kλ), exactly."""
    terms, _ = evaluated(host, p={"first": P, "last": 0.5}, noise=noise)
    expected = (FIRST**2).sum() / (2 * KEPT * PRIOR**2)
    assert terms["first"] == pytest.approx(-expected, rel=1e-12)
    assert terms["last"] == pytest.approx(-(LAST**2).sum() / PRIOR**2, rel=1e-12)


def centred(host, shape):
    return host.dist.Normal(0.7, PRIOR).expand(shape)


def test_divergence_from_a_normal_prior_with_a_mean(host):
    second = ((FIRST - 0.7) ** 2 + P / KEPT * FIRST**2).sum()
    terms, _ = evaluated(host, lambda *data: network(*data, prior=centred), p=P)
    assert terms["first"] == pytest.approx(-second / (2 * PRIOR**2), rel=1e-12)


def laplace(host, shape):
    return host.dist.Laplace(0.2, PRIOR).expand(shape)


@IN_PYRO
def test_divergence_from_other_priors(host):
    """E_q[log p] over the two values of each weight; of Gaussian noise by quadrature."""
    log_prior = lambda w: -np.abs(w - 0.2) / PRIOR - np.log(2 * PRIOR)  # noqa: E731
    model = lambda *data: network(*data, prior=laplace)  # noqa: E731
    terms, _ = evaluated(host, model, p=P)
    expected = (KEPT * log_prior(FIRST / KEPT) + P * log_prior(0.0)).sum()
    assert terms["first"] == pytest.approx(expected, rel=1e-12)
    terms, _ = evaluated(host, model, p=P, noise="gaussian")
    draws = 1 + np.sqrt(P / KEPT) * np.random.default_rng(0).normal(size=(100_000, 1, 1))
    values = log_prior(FIRST * draws).sum((1, 2))
    assert abs(terms["first"] - values.mean()) < 4 * values.std() / len(values) ** 0.5


def hierarchical(host, x, y=None):
    scale = host.language.sample("scale", host.dist.LogNormal(0.3, 1.0))
    network(host, x, y, prior=lambda host, shape: host.dist.Normal(0.0, scale).expand(shape))


def with_parameter(host, x, y=None):
    scale = host.language.param("spread", host.array(PRIOR))
    network(host, x, y, prior=lambda host, shape: host.dist.Normal(0.0, scale).expand(shape))


@pytest.mark.parametrize(
    ("host", "noise"),
    [("pyro", "bernoulli"), ("pyro", "gaussian"), ("numpyro", "bernoulli")],
    indirect=["host"],
)
@pytest.mark.parametrize("model", [hierarchical, with_parameter])
def test_a_prior_with_a_learnt_scale_keeps_its_constant(model, noise, host):
    """Else the scale would grow without bound."""
    terms, _ = evaluated(host, model, p=P, noise=noise)
    scale = PRIOR if model is with_parameter else np.exp(value_of("scale", ()))
    expected = -(FIRST**2).sum() / (2 * KEPT * scale**2) - 6 * np.log(2 * np.pi * scale**2)
    assert terms["first"] == pytest.approx(expected, rel=1e-9)


def without_hidden_units(host, x, y=None):
    """With random biases beside the masked weight, and a random scale."""
    scale = host.language.sample("scale", host.dist.LogNormal(0.3, 1.0))
    first = host.language.sample("first", host.dist.Normal(0.0, scale).expand((3, 4)).to_event(2))
    shift = host.language.sample("shift", host.dist.Normal(0.0, scale).expand((4,)).to_event(1))
    host.observe(x, host.dist.Normal((x @ first + shift).sum(-1), SCALE), y)


def test_a_prior_with_a_random_scale(host):
    """E_q[log p] under the hyperparameter's posterior as well."""
    terms, _ = evaluated(host, without_hidden_units, p=P, others="mean_field")
    m, v = value_of("scale", ()), 0.05**2
    precision = np.exp(-2 * m + 2 * v)
    expected = -(FIRST**2).sum() / (2 * KEPT) * precision - 6 * (np.log(2 * np.pi) + 2 * m)
    assert terms["first"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("host", "noise"),
    [("pyro", "bernoulli"), ("pyro", "dropconnect"), ("numpyro", "dropconnect")],
    indirect=["host"],
)
def test_learnt_probabilities_count_the_entropy_of_their_masks(host, noise):
    fixed, learnt = (evaluated(host, p=P, noise=noise, learn_p=flag)[0] for flag in (False, True))
    entropy = -P * np.log(P) - KEPT * np.log(KEPT)
    units = {"first": 3, "last": 4} if noise == "bernoulli" else {"first": 12, "last": 4}
    for site, count in units.items():
        assert learnt[site] - fixed[site] == pytest.approx(count * entropy, rel=1e-9)
    assert learnt["obs"] == pytest.approx(fixed["obs"], rel=1e-9)


@pytest.mark.parametrize("noise", ["bernoulli", "dropconnect"])
def test_predictions_of_one_layer_are_exact(host, noise):
    """Over all masks of the inputs of a linear regression."""

    def regression(host, x, y=None):
        w = host.language.sample("first", host.dist.Normal(0.0, PRIOR).expand((3,)).to_event(1))
        host.observe(x, host.dist.Normal(x @ w, SCALE), y)

    terms, prediction = evaluated(host, regression, p=P, noise=noise)
    weights = value_of("first", (3,))
    masks = np.array(list(itertools.product((0, 1), repeat=3)))
    chances = np.prod(np.where(masks, KEPT, P), axis=1)
    outputs = X @ (masks / KEPT * weights).T
    mean = outputs @ chances
    variance = (outputs - mean[:, None]) ** 2 @ chances
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.epistemic_variance, variance, rtol=1e-9)
    expected = -0.5 * (np.log(2 * np.pi * SCALE**2) + ((Y - mean) ** 2 + variance) / SCALE**2)
    assert terms["obs"] == pytest.approx(expected.sum(), rel=1e-9)


def test_nothing_dropped_is_a_point_estimate(host):
    _, prediction = evaluated(host, p=0.0)
    h = np.maximum(X @ FIRST + value_of("shift", (4,)), 0)
    np.testing.assert_allclose(prediction.mean, h @ LAST + value_of("level", ()), rtol=1e-9)
    np.testing.assert_allclose(prediction.epistemic_variance, 0.0, atol=1e-12)


def twice(host, x, y=None):
    w = host.language.sample("w", host.dist.Normal(0.0, 1.0).expand((3, 3)).to_event(2))
    host.observe(x, host.dist.Normal((host.np.tanh(x @ w) @ w)[:, 0], SCALE), y)


def elsewhere(host, x, y=None):
    w = host.language.sample("w", host.dist.Normal(0.0, 1.0).expand((3, 3)).to_event(2))
    host.observe(x, host.dist.Normal((x @ w).sum(-1) + w.sum(), SCALE), y)


def products(host, x, y=None):
    w = host.language.sample("w", host.dist.Normal(0.0, 1.0).expand((3,)).to_event(1))
    host.observe(x, host.dist.Normal((x * w).sum(-1), SCALE), y)


def dependent(host, x, y=None):
    w = host.language.sample("w", host.dist.MultivariateNormal(host.np.zeros(3), host.np.eye(3)))
    host.observe(x, host.dist.Normal(x @ w, SCALE), y)


def positive(host, x, y=None):
    w = host.language.sample("w", host.dist.LogNormal(0.0, 1.0).expand((3,)).to_event(1))
    host.observe(x, host.dist.Normal(x @ w, SCALE), y)


REFUSED = {
    "is contracted a second time": (twice, {}),
    "meets an operation other than a transpose": (elsewhere, {}),
    "finds no site to mask": (products, {}),
    "which the model contracts with no input": (network, {"p": {"shift": 0.1}}),
    "which the model does not have": (network, {"p": {"lost": 0.1}}),
    "whose elements are dependent": (dependent, {}),
    "its support is not all real numbers": (positive, {}),
}


@IN_PYRO
@pytest.mark.parametrize("cause", REFUSED)
def test_refusals(cause, host):
    model, options = REFUSED[cause]
    with pytest.raises(UnsupportedMoments) as raised:
        evaluated(host, model, **options)
    assert cause in str(raised.value)
    assert raised.value.remedy
    assert raised.value.sites


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"p": 1.0}, r"p=1.0 .* \[0, 1\)"),
        ({"p": {"first": -0.1}}, r"p=-0.1"),
        ({"p": 0.0, "learn_p": True}, r"\(0, 1\)"),
        ({"noise": "laplace"}, "bernoulli, gaussian, dropconnect"),
        ({"others": "delta"}, "point, mean_field"),
        ({"noise": "gaussian", "learn_p": True}, "entropy"),
        ({"temperature": 0.0}, "temperature=0.0 must be positive"),
        ({"init_scale": 0.0}, "init_scale=0.0 must be positive"),
    ],
)
def test_options_are_checked(option, message, host):
    with pytest.raises(ValueError, match=message):
        host.package.MCDropoutGuide(**option)
