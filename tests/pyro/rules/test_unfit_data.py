"""Data in another precision, or of other shapes, than the parameters: the cause and the line."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_moments import DeterministicELBO, DVIGuide, UnsupportedMoments

X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)
Y = torch.linspace(0.2, 0.8, 4)


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
    assert "test_unfit_data.py" in raised.value.location


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
    assert "test_unfit_data.py" in raised.value.location


def test_other_errors_of_torch_pass():
    def model(x, y):
        raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        DeterministicELBO().loss(model, DVIGuide(), X, Y)
