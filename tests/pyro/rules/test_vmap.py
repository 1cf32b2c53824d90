"""A function of random values inside ``torch.vmap`` is refused by name; without vmap it works."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_moments import DeterministicELBO, DVIGuide, Moments, UnsupportedMoments, propagate

X = torch.linspace(-1.0, 1.0, 15).reshape(5, 3)
INPUTS = Moments(X, variance=torch.full((5, 3), 0.1))

MAPPED = {
    "a function": torch.vmap(torch.tanh),
    "an operator": torch.vmap(lambda row: 2 * row + row),
    "beside data": lambda h: torch.vmap(lambda row, x: row * x)(h, X),
    "of data": lambda h: torch.vmap(lambda x: x @ h[0])(X),
    "of other axes": torch.func.vmap(torch.sum, in_dims=1),
}


@pytest.mark.parametrize("name", MAPPED)
def test_values(name):
    with pytest.raises(UnsupportedMoments) as raised:
        propagate(MAPPED[name], INPUTS)
    assert raised.value.operation == "torch.vmap"
    assert "test_vmap.py" in raised.value.location
    assert raised.value.sites == ("input 0",)
    assert "torch.stack" in raised.value.remedy


def model(rows):
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 5):
        pyro.sample("obs", dist.Normal(rows(w), 1.0), obs=torch.ones(5))


@pytest.mark.parametrize("propagation", ["analytic", "sampled"])
def test_models(propagation):
    elbo = DeterministicELBO(propagation=propagation)
    mapped = lambda w: torch.vmap(lambda x: torch.tanh(x @ w))(X)  # noqa: E731
    with pytest.raises(UnsupportedMoments, match=r"torch\.vmap"):
        elbo.loss(lambda: model(mapped), DVIGuide())
    for rows in (
        lambda w: torch.tanh(X @ w),
        lambda w: torch.stack([torch.tanh(x @ w) for x in X]),
    ):
        pyro.clear_param_store()
        assert elbo.loss(lambda rows=rows: model(rows), DVIGuide()) > 0


def test_other_transforms_are_not_called_vmap():
    with pytest.raises(UnsupportedMoments) as raised:
        propagate(torch.func.grad(lambda h: h.tanh().sum()), INPUTS)
    assert raised.value.operation == "aten.tanh.default"


def test_data_may_be_mapped():
    """What is certain is no concern of the rules."""
    found = propagate(lambda h: h * torch.vmap(torch.tanh)(X), INPUTS)
    torch.testing.assert_close(found.mean, X * X.tanh())
