"""Refusals of random values: the site that is drawn helps, and the line is the user's."""

import copy
import re
import statistics

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.nn import functional as F

from pyro_moments import DeterministicELBO, DVIGuide, UnsupportedMoments, predict

X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)
Y = torch.linspace(0.2, 0.8, 4)


def regression(likelihood):
    """Two Gaussian sites, observed through a function of them."""

    def model(x=X, y=Y):
        a = pyro.sample("a", dist.Normal(torch.zeros(4), 1.0).to_event(1))
        b = pyro.sample("b", dist.Normal(torch.zeros(4), 1.0).to_event(1))
        with pyro.plate("data", 4):
            pyro.sample("obs", likelihood(a, b), obs=y)

    return model


def normal(step):
    return regression(lambda a, b: dist.Normal(step(a, b), 1.0))


# Program, words of the cause.
DRAWN = {
    "no rule": (normal(lambda a, b: torch.special.i0(a)), "no moment rule"),
    "division": (normal(lambda a, b: b / a), "negative values|1/x"),
    "index": (normal(lambda a, b: X[:, 0][a.argsort()]), "in order"),
    "choice": (normal(lambda a, b: torch.where(a > b.exp(), a, b)), "comparison|choice|branch"),
    "power of both": (normal(lambda a, b: a**b), "random power"),
    "log of a difference": (
        normal(lambda a, b: (a.exp() - b.exp()).log()),
        "mean and variance only",
    ),
    "log of a Gaussian": (normal(lambda a, b: (a + b).log()), "log of a Gaussian is not defined"),
    "root of a product": (
        normal(lambda a, b: (F.softplus(a) * torch.tanh(b)).sqrt()),
        "product of functions of different Gaussians",
    ),
    "rounding": (normal(lambda a, b: torch.div(a, 2.0, rounding_mode="floor")), "rounding_mode"),
    "Gaussian scale": (regression(lambda a, b: dist.Normal(a, 1 + b)), "scale is a Gaussian"),
    "Gaussian probability": (
        regression(lambda a, b: dist.Bernoulli(probs=0.5 + 0.01 * a)),
        "probability is a Gaussian",
    ),
    "Gaussian rate": (regression(lambda a, b: dist.Exponential(1 + b)), "Gaussian"),
    "location and scale": (
        regression(lambda a, b: dist.Normal(a * a.logsumexp(-1), torch.logsumexp(a * b, -1).exp())),
        "covariance is not known",
    ),
    "attention": (normal(lambda a, b: (a[:, None] @ b[None]).tanh() @ a), "dependent values"),
    "rows": (normal(lambda a, b: ((a[:, None] * b).tanh() * a).sum(-1)), "covariance is not known"),
}
KNOWN = {("location and scale", "full")}  # where nothing is refused
CASES = [(name, kind) for name in DRAWN for kind in ("full", "diagonal")]
CASES = [case for case in CASES if case not in KNOWN]


def refused(model, **options):
    with pyro.validation_enabled(False), pytest.raises(UnsupportedMoments) as raised:
        DeterministicELBO(**options).loss(model, DVIGuide())
    return raised.value


@pytest.mark.parametrize(("name", "covariance"), CASES)
def test_drawing_the_sites_is_offered_and_the_line_is_the_users(name, covariance):
    model, cause = DRAWN[name]
    refusal = refused(model, covariance=covariance)
    assert re.search(cause, refusal.cause), refusal
    assert "sample_sites=" in refusal.remedy, refusal
    assert "propagation='sampled'" in refusal.remedy, refusal
    assert "test_remedies.py" in refusal.location, refusal
    assert set(refusal.sites) <= {"a", "b"}
    if covariance == "diagonal":
        assert "covariance='diagonal'" not in refusal.remedy


@pytest.mark.parametrize("name", sorted(DRAWN.keys() - {"Gaussian rate", "Gaussian scale"}))
def test_drawing_the_sites_helps(name):
    """No refusal names a site that is drawn."""
    with pyro.validation_enabled(False):
        DeterministicELBO(sample_sites=["a", "b"]).loss(DRAWN[name][0], DVIGuide())


def test_what_is_positive_is_not_to_be_made_positive():
    for name in ("log of a difference", "root of a product"):
        assert "make it positive" not in refused(DRAWN[name][0]).remedy
    assert "make it positive" in refused(DRAWN["log of a Gaussian"][0]).remedy


@pytest.mark.parametrize("step", [copy.deepcopy, lambda a: statistics.fmean(a)])
def test_lines_of_the_standard_library_are_not_the_users(step):
    refusal = refused(normal(lambda a, b: step(a)))
    assert "test_remedies.py" in refusal.location, refusal


def test_predictions_name_the_line_of_the_site():
    model = regression(lambda a, b: dist.Exponential(1 + b))
    guide = DVIGuide(model)
    with pyro.validation_enabled(False):
        guide()
        with pytest.raises(UnsupportedMoments) as raised:
            predict(model, guide)
    assert raised.value.cause.startswith("site 'obs'")
    assert "test_remedies.py" in raised.value.location


def linear(x, y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(x @ w, 1.0), obs=y)


def vectors(x, y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.MultivariateNormal(x * w, torch.eye(3)), obs=x)


def recurrent(x, y):
    linear(torch.nn.RNN(3, 3)(x)[0], y)


OF_X = "input 'x' is torch.float64"


@pytest.mark.parametrize(
    ("model", "words"), [(linear, OF_X), (recurrent, OF_X), (vectors, "site 'obs'")]
)
def test_data_in_another_precision_than_the_parameters(model, words):
    with pytest.raises(UnsupportedMoments, match=words) as raised:
        DeterministicELBO().loss(model, DVIGuide(), X.double(), Y)
    assert "torch.float32" in raised.value.cause
    assert "set_default_dtype" in raised.value.remedy
    assert "test_remedies.py" in raised.value.location


def test_precision_inside_an_operation_names_the_operation():
    guide = DVIGuide()
    DeterministicELBO().loss(linear, guide, X, Y)
    with pytest.raises(UnsupportedMoments) as raised:
        DeterministicELBO().loss(linear, guide, X.double(), Y)
    assert "matmul" in raised.value.operation
    assert raised.value.sites == ("w",)
    assert "torch.float64" in raised.value.cause
    assert "torch.float32" in raised.value.cause


def test_shapes_that_do_not_fit_name_the_arguments_and_the_line():
    with pytest.raises(UnsupportedMoments, match=r"size mismatch.*x \[4, 2\], y \[4\]") as raised:
        DeterministicELBO().loss(linear, DVIGuide(), X[:, :2], Y)
    assert "test_remedies.py" in raised.value.location


def test_other_errors_of_torch_pass():
    def model(x, y):
        raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        DeterministicELBO().loss(model, DVIGuide(), X, Y)
