"""Weights of a module that its user froze stay what they are, with a warning."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample

from pyro_moments import DVIGuide, fit

X = torch.linspace(-1, 1, 12)[:, None]
Y = X[:, 0] ** 2


class Frozen(PyroModule):
    """A frozen layer before a random one."""

    def __init__(self):
        super().__init__()
        self.features = PyroModule[torch.nn.Linear](1, 3)
        self.features.requires_grad_(False)
        self.last = PyroModule[torch.nn.Linear](3, 1, bias=False)
        self.last.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))

    def forward(self, x, y=None):
        mean = self.last(torch.tanh(self.features(x)))[:, 0]
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(mean, 0.1), obs=y)


@pytest.mark.parametrize("method", ["lbfgs", "adam"])
def test_frozen_weights_do_not_move(method):
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    model = Frozen()
    before = model.features.weight.detach().clone()
    with pytest.warns(UserWarning, match=r"does not train features\.weight, features\.bias"):
        result = fit(model, DVIGuide(), X, Y, steps=3, by_draws=False, method=method)
    assert torch.equal(model.features.weight.detach(), before)
    assert not any(part.requires_grad for part in model.features.parameters())
    assert result.predict(X)["y"].mean.isfinite().all()
