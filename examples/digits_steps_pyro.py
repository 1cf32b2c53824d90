"""The networks of the example of step activations in Pyro."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from digits_steps import CLASSES, HIDDEN, Digits, Setting, initial_weights
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from pyro_moments import DeterministicELBO, DVIGuide, fit, predict


class Steps(PyroModule):
    """One hidden layer of signs, as steps with the values −1 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = bayesian_linear(64, HIDDEN, scale=64**-0.5)
        self.output = bayesian_linear(HIDDEN, CLASSES, scale=1.0)

    def forward(self, x: Tensor, y: Tensor | None = None) -> None:
        steps = torch.heaviside(self.hidden(x), torch.tensor(0.0))
        logits = self.output(2 * steps - 1)
        with pyro.plate("images", len(x)):
            pyro.sample("digit", dist.Categorical(logits=logits), obs=y)


def bayesian_linear(inputs: int, outputs: int, scale: float) -> PyroModule:
    layer = PyroModule[nn.Linear](inputs, outputs)
    layer.weight = PyroSample(dist.Normal(0.0, scale).expand([outputs, inputs]).to_event(2))
    layer.bias = PyroSample(dist.Normal(0.0, 1.0).expand([outputs]).to_event(1))
    return layer


def by_moments(data: Digits, setting: Setting) -> dict[str, float]:
    """The test accuracy, and the loss in nats for each image beside that of draws."""
    pyro.settings.set(module_local_params=True)
    pyro.set_rng_seed(setting.seed)
    model, guide = Steps(), DVIGuide()
    x, y, x_test = (torch.as_tensor(part) for part in (data.x_train, data.y_train, data.x_test))
    fit(
        model,
        guide,
        x,
        y,
        objective=DeterministicELBO(covariance="backward"),
        steps=setting.steps,
        batch_size=setting.batch_size,
        optimiser=partial(torch.optim.Adam, lr=setting.learning_rate),
        scheduler=partial(CosineAnnealingLR, T_max=setting.steps),
        seed=setting.seed,
        progress_bar=False,
    )
    found = predict(model, guide, x_test, covariance="backward")["digit"].probs
    drawn = DeterministicELBO(propagation="sampled", num_particles=setting.num_particles)
    return {
        "accuracy": float(np.mean(found.argmax(-1).numpy() == data.y_test)),
        "loss": DeterministicELBO(covariance="backward").loss(model, guide, x, y) / len(x),
        "loss by draws": drawn.loss(model, guide, x, y) / len(x),
    }


class _Sign(torch.autograd.Function):
    """The sign, with the gradient of the identity between −1 and 1."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return torch.where(x > 0, 1.0, -1.0)

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * (x.abs() < 1)


def straight_through(data: Digits, setting: Setting) -> dict[str, float]:
    """The test accuracy."""
    random = np.random.default_rng(setting.seed)
    weights = [torch.tensor(part, requires_grad=True) for part in initial_weights(random)]
    biases = [torch.zeros(count, requires_grad=True) for count in (HIDDEN, CLASSES)]
    optimiser = torch.optim.Adam([*weights, *biases], lr=setting.learning_rate / 10)
    schedule = CosineAnnealingLR(optimiser, setting.steps)

    def logits(x: Tensor) -> Tensor:
        return F.linear(_Sign.apply(F.linear(x, weights[0], biases[0])), weights[1], biases[1])

    x, y, x_test = (torch.as_tensor(part) for part in (data.x_train, data.y_train, data.x_test))
    for _ in range(setting.steps):
        rows = torch.as_tensor(random.choice(len(x), setting.batch_size, replace=False))
        optimiser.zero_grad()
        F.cross_entropy(logits(x[rows]), y[rows]).backward()
        optimiser.step()
        schedule.step()
    found = logits(x_test).argmax(-1).numpy()
    return {"accuracy": float(np.mean(found == data.y_test))}
