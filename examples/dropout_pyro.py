"""The networks of the dropout examples in Pyro."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from dropout import Setting
from pyro.distributions import constraints
from pyro.nn import PyroModule, PyroParam, PyroSample
from regression import Split
from regression_pyro import init_with_spread_kinks
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from pyro_moments import BBAlphaELBO, MCDropoutGuide, fit, predict


class HomoscedasticNetwork(PyroModule):
    """One hidden ReLU layer, one output, and noise of a learnt scale; priors N(0, 1)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = bayesian_linear(inputs, hidden)
        self.output = bayesian_linear(hidden, 1)
        self.scale = PyroParam(torch.tensor(0.3), constraint=constraints.positive)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        loc = self.output(torch.relu(self.hidden(x)))[..., 0]
        scale = self.scale
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Normal(loc, scale), obs=y)


def bayesian_linear(inputs: int, outputs: int) -> PyroModule:
    layer = PyroModule[nn.Linear](inputs, outputs)
    layer.weight = PyroSample(dist.Normal(0.0, 1.0).expand([outputs, inputs]).to_event(2))
    layer.bias = PyroSample(dist.Normal(0.0, 1.0).expand([outputs]).to_event(1))
    return layer


def train_and_predict(split: Split, setting: Setting) -> tuple[np.ndarray, np.ndarray, float]:
    """Log density and mean of the test rows, and seconds of a step."""
    pyro.settings.set(module_local_params=True)  # two trainings share nothing
    pyro.enable_validation(False)
    pyro.set_rng_seed(setting.seed)
    model = HomoscedasticNetwork(split.x_train.shape[1], setting.hidden)
    guide = MCDropoutGuide(model, p=setting.rates, init_loc_fn=init_with_spread_kinks)
    rate = setting.learning_rate
    found = fit(
        model,
        guide,
        torch.as_tensor(split.x_train),
        torch.as_tensor(split.y_train),
        objective=BBAlphaELBO(**setting.method.objective),
        steps=setting.steps,
        batch_size=min(setting.batch_size, len(split.x_train)),
        optimiser=partial(torch.optim.Adam, lr=rate),
        scheduler=partial(OneCycleLR, max_lr=rate, total_steps=setting.steps, cycle_momentum=False),
        seed=setting.seed,
        progress_bar=False,
    )
    with torch.no_grad():
        x, y = torch.as_tensor(split.x_test), torch.as_tensor(split.y_test)
        prediction = predict(model, guide, x, **setting.method.prediction)["obs"]
        log_prob = prediction.log_prob(y)
    return log_prob.numpy(), prediction.mean.numpy(), found.seconds["fitting"] / setting.steps
