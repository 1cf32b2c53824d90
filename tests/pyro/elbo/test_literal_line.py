"""The literal line on models that users have: nothing in them knows of moments."""

import pyro
import pytest
import torch
from pyro.infer import TraceMeanField_ELBO

from pyro_moments import SVI, DeterministicELBO, DVIGuide
from tests.pyro import models

X, Y = models.data()

MODELS = {
    "sequential": models.sequential,
    "plain function": lambda: models.plain_function,
    "residual": models.residual,
    "linear regression": lambda: models.linear_regression,
    "heteroscedastic": models.Heteroscedastic,
}


@pytest.fixture(params=MODELS, ids=str)
def model(request):
    return MODELS[request.param]()


def test_training_lowers_the_loss_without_noise(model):
    svi = SVI(model, DVIGuide(), DeterministicELBO())
    losses = [svi.step(X, Y) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert svi.evaluate_loss(X, Y) == svi.evaluate_loss(X, Y)


def test_repeated_gradients_are_bitwise_equal(model):
    guide, elbo = DVIGuide(), DeterministicELBO()
    gradients = []
    for _ in range(2):
        guide.zero_grad()
        elbo.loss_and_grads(model, guide, X, Y)
        gradients.append([p.grad.clone() for p in guide.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert all(torch.isfinite(g).all() for g in gradients[0])


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_double_precision_runs_throughout(covariance):
    x, y = (array.double() for array in models.data())
    guide, elbo = DVIGuide(), DeterministicELBO(covariance=covariance)
    loss = elbo.differentiable_loss(models.sequential(2), guide, x, y)
    assert loss.dtype == torch.float64
    assert all(p.dtype == torch.float64 for p in guide.parameters())


def test_svi_takes_the_arguments_in_either_order():
    adam = pyro.optim.Adam({"lr": 0.01})
    model = models.linear_regression
    for arguments in [
        (DeterministicELBO(),),
        (adam, DeterministicELBO()),
        (DeterministicELBO(), adam),
        (adam,),
        (),
    ]:
        assert SVI(model, DVIGuide(), *arguments).step(X, Y) > 0
    assert SVI(model, DVIGuide(), TraceMeanField_ELBO()).step(X, Y) > 0
    host = pyro.infer.SVI(model, DVIGuide(), adam, loss=DeterministicELBO())
    assert host.step(X, Y) > 0


def test_svi_refuses_what_is_neither_optimiser_nor_loss():
    with pytest.raises(TypeError, match="at most one optimiser"):
        SVI(models.linear_regression, DVIGuide(), 3)
    with pytest.raises(TypeError, match="at most one optimiser"):
        SVI(models.linear_regression, DVIGuide(), DeterministicELBO(), DeterministicELBO())
