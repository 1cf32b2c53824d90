"""The deterministic ELBO equals Pyro's Monte Carlo estimate."""

from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

from pyro_moments import DeterministicELBO, DVIGuide
from tests.oracles.pyro_samples import assert_near, trace_elbo, train
from tests.pyro import models

X, Y = models.data()

# Share of the loss by which the Gaussian matching may differ, on top of three standard errors.
CASES = {
    "linear regression": (lambda: models.linear_regression, "full", 0.0),
    "one hidden layer": (models.sequential, "full", 0.005),
    "one hidden layer of tanh": (lambda: models.sequential(1, nn.Tanh), "full", 0.005),
    "plain function": (lambda: models.plain_function, "full", 0.005),
    "three hidden layers": (lambda: models.sequential(3), "full", 0.02),
    "residual": (models.residual, "full", 0.01),
    "heteroscedastic": (models.Heteroscedastic, "full", 0.01),
    "one hidden layer, diagonal": (models.sequential, "diagonal", 0.005),
}


@pytest.mark.parametrize("name", CASES)
def test_regression(name):
    make, covariance, share = CASES[name]
    model, guide = make(), DVIGuide()
    loss = train(model, guide, DeterministicELBO(covariance=covariance), X, Y, steps=40)
    assert_near(loss, trace_elbo(model, guide, X, Y, samples=500), share, errors=3)


def test_classification_by_delta_and_its_jensen_bound():
    classes = (Y > 0).long() + (Y > 1).long()
    model, guide = models.Classifier(), DVIGuide()
    delta = train(model, guide, DeterministicELBO(), X, classes, steps=40)
    expected, error = trace_elbo(model, guide, X, classes, samples=1000)
    assert_near(delta, (expected, error), 0.01, errors=3)
    bound = DeterministicELBO(categorical="jensen").loss(model, guide, X, classes)
    assert bound > expected - 3 * error


def test_first_layer_outputs_carry_no_redundant_covariance():
    """One hidden layer is exact up to the last Gaussian, so both modes agree bit by bit."""
    model, guide = models.sequential(), DVIGuide()
    full = DeterministicELBO(covariance="full").loss(model, guide, X, Y)
    diagonal = DeterministicELBO(covariance="diagonal").loss(model, guide, X, Y)
    assert full == pytest.approx(diagonal, rel=1e-6)


@pytest.mark.usefixtures("double_precision")
def test_dvi_rules_agree_with_the_exact_ones():
    x, y = (array.double() for array in models.data())
    model, guide = models.sequential(3), DVIGuide(init_scale=0.4)
    exact = DeterministicELBO().loss(model, guide, x, y)
    dvi = DeterministicELBO(rules="dvi").loss(model, guide, x, y)
    assert dvi == pytest.approx(exact, rel=1e-4)
    assert dvi != exact


@pytest.mark.usefixtures("double_precision")
def test_gradients_match_finite_differences():
    x, y = (array.double() for array in models.data())
    model, guide, elbo = models.sequential(2), DVIGuide(), DeterministicELBO()
    elbo.loss_and_grads(model, guide, x, y)
    for parameter in guide.parameters():
        gradient, flat = parameter.grad.reshape(-1)[0], parameter.data.reshape(-1)
        step, start = 1e-6, flat[0].item()
        losses = []
        for sign in (1, -1):
            flat[0] = start + sign * step
            losses.append(elbo.loss(model, guide, x, y))
        flat[0] = start
        assert gradient == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-4)


@pytest.mark.filterwarnings("error")
def test_data_in_columns_is_the_same_network():
    """W @ x with the data in columns: the rows of the weights are the features."""

    def network(x, y, *, columns):
        w1, w2 = (
            pyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(2))
            for name, shape in (("w1", [5, 3]), ("w2", [4, 5]))
        )
        last = pyro.sample("last", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        if columns:
            mean = last @ torch.relu(w2 @ torch.relu(w1 @ x.T))
        else:
            mean = torch.relu(torch.relu(x @ w1.T) @ w2.T) @ last
        models.observe(x, dist.Normal(mean, 0.3), y)

    guide, elbo = DVIGuide(init_scale=0.3), DeterministicELBO()
    rows = elbo.loss(partial(network, columns=False), guide, X, Y)
    assert elbo.loss(partial(network, columns=True), guide, X, Y) == pytest.approx(rows, rel=1e-6)
