"""What the check of a loss sees by draws of all but the last random map, and how long it takes."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample

from moment_calculus.errors import LossByDrawsWarning
from moment_inference.criticism.diagnosis.checks import check_loss_by_draws
from moment_inference.criticism.diagnosis.findings import Verdict
from tests.checks.marks import IN_PYRO
from tests.fitting.models import trained


def heteroscedastic(host):
    """Twenty leaky rectifiers, and the logarithm of the scale as a second output."""
    normal, np_ = host.dist.Normal(0.0, 1.0), host.np

    def layer(name, x, size):
        shape = (x.shape[-1], size)
        weight = host.language.sample(f"{name}.weight", normal.expand(shape).to_event(2))
        return x @ weight + host.language.sample(f"{name}.bias", normal.expand([size]).to_event(1))

    def model(x, y=None):
        hidden = layer("first", x, 20)
        out = layer("last", np_.where(hidden > 0, hidden, 0.1 * hidden), 2)
        scale = np_.exp(0.5 * out[..., 1])
        host.observe(x, host.dist.Normal(out[..., 0], scale), y)

    return model


def test_tails_of_a_scale_by_a_network_are_seen(host):
    """Of relu units the loss has the tails, see likelihoods/test_tails.py; not of leaky ones."""
    x = np.linspace(-2, 2, 60, dtype=np.float32)[::2, None]
    noise = np.random.default_rng(0).normal(size=30)
    y = (np.sin(2 * x[:, 0]) + 0.1 * (1 + abs(x[:, 0])) * noise).astype(np.float32)
    with pytest.warns(LossByDrawsWarning, match="contradicts.*alpha=1"):
        fit = trained(host, heteroscedastic(host), x, y, method="lbfgs", steps=100)
    found = fit.by_draws
    assert found.value > found.loss + 1.0
    assert "contradicts" in str(fit)
    assert check_loss_by_draws(found).verdict is Verdict.BAD


@IN_PYRO
def test_layers_that_vmap_does_not_run_are_checked(host):
    class Recurrent(PyroModule):
        def __init__(self):
            super().__init__()
            self.cell = PyroModule[torch.nn.RNN](2, 3, batch_first=True)
            for name, value in list(self.cell.named_parameters()):
                prior = dist.Normal(0.0, 0.5).expand(value.shape).to_event(value.dim())
                setattr(self.cell, name, PyroSample(prior))

        def forward(self, x, y=None):
            mean = self.cell(x)[0][:, -1].sum(-1)
            with pyro.plate("data", len(x)):
                pyro.sample("obs", dist.Normal(mean, 0.3), obs=y)

    x = host.array(np.random.default_rng(0).normal(size=(8, 3, 2)).astype(np.float32))
    objective = host.package.DeterministicELBO(covariance="backward")
    fit = host.fit(Recurrent(), x, x[..., 0].sum(1), objective=objective, steps=10, by_draws=True)
    assert fit.by_draws.answer == "agrees"


@IN_PYRO
def test_its_seconds_are_an_option(host):
    for wrong in (0, -1.0):
        with pytest.raises(ValueError, match="seconds that the check takes"):
            host.fit(host.regression, host.x, host.y, steps=2, by_draws=wrong)
    found = host.fit(host.regression, host.x, host.y, steps=2, by_draws=0.01).by_draws
    assert math.isfinite(found.value)
