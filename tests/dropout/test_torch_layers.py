"""Dropout layers of torch in training are noise of mean one; two-point sums are the oracle."""

import itertools

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from moment_calculus.errors import UnsupportedMoments
from pyro_moments import SVI, DeterministicELBO, DVIGuide, Moments, predict, propagate
from tests.pyro.compiled.compiling import assert_same, make

P = 0.3
R = P / (1 - P)
X = torch.linspace(-1.0, 2.0, 6).reshape(2, 3)
V = torch.linspace(0.1, 0.6, 6).reshape(2, 3)
A = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)
IMAGE = torch.linspace(-1.0, 1.0, 48).reshape(2, 3, 2, 4)

ELEMENTWISE = {
    "module": nn.Dropout(P),
    "in place": lambda x: nn.Dropout(P, inplace=True)(x + 0.0),
    "function": lambda x: F.dropout(x, P),
    "torch": lambda x: torch.dropout(x, P, True),
}


def moments(function, *inputs, covariance="full"):
    found = propagate(function, *inputs, covariance=covariance)
    return found.mean, found.variance if found.covariance is None else found.covariance


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_of_a_random_value(name, covariance):
    factor = torch.linspace(-1, 1, 18).reshape(2, 3, 3)
    spread = factor @ factor.mT
    given = {"covariance": spread} if covariance == "full" else {"variance": V}
    mean, found = moments(ELEMENTWISE[name], Moments(X, **given), covariance=covariance)
    torch.testing.assert_close(mean, X)
    variance = V if covariance == "diagonal" else spread.diagonal(dim1=-2, dim2=-1)
    noise = R * (variance + X.square())
    expected = V + noise if covariance == "diagonal" else spread + torch.diag_embed(noise)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", sorted(ELEMENTWISE.keys() - {"in place"}))
def test_of_a_certain_value(name):
    """Over all masks of the inputs of a linear map."""
    mean, covariance = moments(lambda: ELEMENTWISE[name](X) @ A.T)
    masks = np.array(list(itertools.product((0, 1), repeat=3)))
    chances = np.prod(np.where(masks, 1 - P, P), axis=1)
    outputs = np.einsum("ki,bi,oi->kbo", masks / (1 - P), X, A)
    centre = np.einsum("k,kbo->bo", chances, outputs)
    deviations = outputs - centre
    np.testing.assert_allclose(mean, centre, rtol=1e-5, atol=1e-6)
    expected = np.einsum("k,kbo,kbi->boi", chances, deviations, deviations)
    np.testing.assert_allclose(covariance, expected, rtol=1e-4, atol=1e-6)


CHANNELS = {
    "1d": (nn.Dropout1d(P), IMAGE[:, :, 0], (2, 3, 1)),
    "1d, no batch": (nn.Dropout1d(P), IMAGE[0, :, 0], (3, 1)),
    "2d": (nn.Dropout2d(P), IMAGE, (2, 3, 1, 1)),
    "3d": (nn.Dropout3d(P), IMAGE[..., None], (2, 3, 1, 1, 1)),
    "3d, no batch": (nn.Dropout3d(P), IMAGE, (2, 1, 1, 1)),
    "feature": (lambda x: torch.feature_dropout(x, P, True), IMAGE, (2, 3, 1, 1)),
}


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("random", [False, True])
def test_of_channels(name, random):
    """Noise that the elements of a channel share: their mean has the variance of one of them."""
    module, x, shape = CHANNELS[name]
    variance = 0.2 * torch.ones_like(x) if random else torch.zeros_like(x)
    found = (
        propagate(module, Moments(x, variance=variance)) if random else propagate(lambda: module(x))
    )
    torch.testing.assert_close(found.mean, x)
    torch.testing.assert_close(found.variance, variance + R * (variance + x.square()))
    drawn = torch.stack([module(torch.ones_like(x)) for _ in range(300)])
    own = tuple(slice(n) for n in shape)
    assert torch.equal(drawn, drawn[(slice(None), *own)].expand_as(drawn))  # which have one mask


def test_a_function_of_channels():
    """The elements of a channel are kept or dropped together."""
    x = IMAGE[:, :, 0]
    found = propagate(lambda: torch.exp(nn.Dropout1d(P)(x)).mean(-1))
    kept = torch.exp(x / (1 - P)).mean(-1)
    torch.testing.assert_close(found.mean, (1 - P) * kept + P)
    torch.testing.assert_close(found.variance, P * (1 - P) * (kept - 1) ** 2)


def test_shared_noise_is_dependent():
    """The mean over the positions of a channel has the variance of (mean x)² r."""
    x = IMAGE[:, :, 0]
    total = propagate(lambda: nn.Dropout1d(P)(x.mT).mean(-1), covariance="full")
    torch.testing.assert_close(total.variance, R * x.mT.mean(-1).square())


def test_one_draw_is_one_value_and_two_are_independent():
    def once(x):
        h = F.dropout(x, P)
        return h + h

    def twice(x):
        return F.dropout(x, P) + F.dropout(x, P)

    for function, factor in ((once, 4), (twice, 2)):
        for inputs, certain in (((), True), ((Moments(X, variance=V),), False)):
            program = (lambda f=function: f(X)) if certain else function
            found = propagate(program, *inputs)
            own = torch.zeros(2, 3) if certain else V
            torch.testing.assert_close(found.variance, 4 * own + factor * R * (own + X.square()))


def test_rates_at_the_ends():
    for p, factor in ((0.0, 1.0), (1.0, 0.0)):
        found = propagate(lambda h, p=p: F.dropout(h, p), Moments(X, variance=V))
        torch.testing.assert_close(found.mean, factor * X)
        torch.testing.assert_close(found.variance, factor * V)
    found = propagate(lambda h: F.dropout(X, 1.0) + h, Moments(X, variance=V))
    torch.testing.assert_close(found.mean, X)
    with pytest.raises(ValueError, match="between 0 and 1"):
        propagate(lambda h: F.dropout(h, 1.5), Moments(X, variance=V))


REFUSED = {
    "other numbers than zero": nn.AlphaDropout(P),
    "puts other numbers": nn.FeatureAlphaDropout(P),
    "become random, or change its shape, in place": nn.Dropout(P, inplace=True),
    "the function draws random numbers": lambda x: F.dropout(x, P) * torch.rand(3),
}


@pytest.mark.parametrize("cause", REFUSED)
def test_refusals_of_certain_values(cause):
    with pytest.raises(UnsupportedMoments, match=cause) as raised:
        propagate(lambda: REFUSED[cause](X))
    assert "test_torch_layers.py" in raised.value.location
    assert raised.value.remedy


def network(p_inputs=0.2, p_hidden=0.5):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Dropout(p_inputs), nn.Linear(3, 20), nn.Tanh(), nn.Dropout(p_hidden), nn.Linear(20, 1)
    )


def model_of(net):
    def model(x, y=None):
        level = pyro.sample("level", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(net(x)[:, 0] + level, 0.5), obs=y)

    return model


def test_a_network_against_its_masks():
    net, x, y = network(), torch.linspace(-1, 1, 12).reshape(4, 3), torch.ones(4)
    model, guide = model_of(net), DVIGuide()
    with torch.no_grad():
        f = net(x.expand(20_000, 4, 3))[..., 0]  # every row of every copy has masks of its own
    elbo = DeterministicELBO()
    assert elbo.loss(model, guide, x, y) == elbo.loss(model, guide, x, y)
    ours = predict(model, guide, x)["obs"]
    level = guide.get_posterior()["level"]
    variance = ours.epistemic_variance - level.variance
    error = (f.var(0) / len(f)).sqrt()
    assert ((ours.mean - level.mean - f.mean(0)).abs() < 4 * error + 0.03 * f.std(0)).all()
    torch.testing.assert_close(variance, f.var(0), rtol=0.1, atol=0.0)
    assert_same(make(), elbo, model, guide, x, y)


def test_training_and_evaluation():
    net = network()
    model, guide = model_of(net), DVIGuide()
    x, y = torch.linspace(-1, 1, 12).reshape(4, 3), torch.ones(4)
    svi = SVI(model, guide, DeterministicELBO())
    assert svi.step(x, y) > svi.step(x, y)
    noisy = predict(model, guide, x)["obs"].variance
    net.eval()
    assert (predict(model, guide, x)["obs"].variance < noisy).all()
