"""Networks with random weights in Pyro, as its users write them."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn


def bayesian(name: str, network: nn.Module) -> nn.Module:
    """Give every weight and bias of the linear maps a standard normal prior, scaled by fan-in."""
    pyro.nn.module.to_pyro_module_(network)
    for layer in list(network.modules()):
        if isinstance(layer, nn.Linear):
            for part, value in list(layer.named_parameters()):
                scale = layer.in_features**-0.5 if part == "weight" else 1.0
                prior = dist.Normal(0.0, scale).expand(value.shape).to_event(value.dim())
                setattr(layer, part, PyroSample(prior))
    owner = PyroModule()
    setattr(owner, name, network)  # which names its sites
    return network


class Residual(nn.Module):
    """Two residual blocks between linear maps."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, hidden), nn.Linear(hidden, 1)
        self.blocks = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block in self.blocks:
            h = h + torch.relu(block(h))
        return self.last(h)


linear, residual = nn.Linear, Residual


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def normalised(inputs: int, hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Linear(hidden, 1)
    )


def trunk(inputs: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh())
