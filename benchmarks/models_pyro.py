"""Twelve Pyro models of different kinds, with data, as their users would write them."""

from __future__ import annotations

from collections.abc import Callable

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn

HIDDEN, INPUTS, POINTS, GROUPS = 10, 3, 60, 20


def inputs() -> Tensor:
    return torch.randn(POINTS, INPUTS, generator=torch.Generator().manual_seed(0))


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*(shape or (POINTS,)), generator=torch.Generator().manual_seed(seed))


def trend(x: Tensor) -> Tensor:
    return torch.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1]


def bayesian(network: nn.Module) -> nn.Module:
    """Give every weight and bias of the linear maps a standard normal prior, scaled by fan-in."""
    pyro.nn.module.to_pyro_module_(network)
    for layer in list(network.modules()):
        if isinstance(layer, nn.Linear):
            for name, value in list(layer.named_parameters()):
                scale = layer.in_features**-0.5 if name == "weight" else 1.0
                prior = dist.Normal(0.0, scale).expand(value.shape).to_event(value.dim())
                setattr(layer, name, PyroSample(prior))
    return network


class Supervised(PyroModule):
    """A network whose outputs parametrise the distribution of every observation.

    Args:
        network: any module.
        likelihood: distribution of the observations, given the network's outputs.
    """

    def __init__(self, network: nn.Module, likelihood: Callable[[Tensor], dist.Distribution]):
        super().__init__()
        self.network, self.likelihood = bayesian(network), likelihood

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        outputs = self.network(x)
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", self.likelihood(outputs), obs=y)


def perceptron(outputs: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


class Residual(nn.Module):
    """Two residual blocks between linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, 1)
        self.blocks = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block in self.blocks:
            h = h + torch.relu(block(h))
        return self.last(h)


def normalised() -> nn.Module:
    return nn.Sequential(
        nn.Linear(INPUTS, HIDDEN), nn.LayerNorm(HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1)
    )


class TwoHeads(PyroModule):
    """One trunk, two observed sites: a real one and a binary one."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = bayesian(nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh()))
        self.real, self.binary = (bayesian(nn.Linear(HIDDEN, 1)) for _ in range(2))

    def forward(self, x: Tensor, y: Tensor, labels: Tensor) -> None:
        h = self.trunk(x)
        real, binary = self.real(h)[..., 0], self.binary(h)[..., 0]
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(real, 0.4), obs=y)
            pyro.sample("labels", dist.Bernoulli(logits=binary), obs=labels)


def logistic(x: Tensor, y: Tensor) -> None:
    """Logistic regression."""
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([INPUTS]).to_event(1))
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Bernoulli(logits=x @ w + b), obs=y)


def poisson(x: Tensor, y: Tensor) -> None:
    """Poisson regression with log link."""
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([INPUTS]).to_event(1))
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Poisson(torch.exp(x @ w + b)), obs=y)


def hierarchical(group: Tensor, y: Tensor) -> None:
    """Twenty groups around a common mean, with a common spread."""
    mu = pyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = pyro.sample("tau", dist.LogNormal(-0.5, 0.5))
    with pyro.plate("groups", GROUPS):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
    with pyro.plate("data", len(y)):
        pyro.sample("obs", dist.Normal(theta[group], 0.5), obs=y)


def local_latents(x: Tensor, y: Tensor) -> None:
    """Noisy inputs: every observation has a latent true input of its own."""
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Normal(x[:, 0], 0.3))
        pyro.sample("obs", dist.Normal(slope * z, 0.5), obs=y)


def heteroscedastic(outputs: Tensor) -> dist.Distribution:
    return dist.Normal(outputs[..., 0], torch.exp(0.5 * outputs[..., 1]))


def ordinal(outputs: Tensor) -> dist.Distribution:
    return dist.OrderedLogistic(outputs[..., 0], torch.tensor([-1.0, 0.5, 1.5]))


def twelve_models() -> dict[str, tuple[Callable, tuple[Tensor, ...]]]:
    """Every model with its arguments, by name."""
    x = inputs()
    y = trend(x) + 0.3 * noise(1)
    heavy = trend(x) + 0.3 * noise(1) * torch.exp(noise(2).clip(min=0))
    grades = torch.bucketize(y, torch.tensor([-0.5, 0.3, 1.0]))
    binary = (y > 0).float()
    counts = torch.poisson(torch.exp(0.5 * trend(x)), generator=torch.Generator().manual_seed(3))
    group = torch.arange(POINTS) % GROUPS
    grouped = noise(4, GROUPS)[group] + 0.5 * noise(5)
    return {
        "regression": (Supervised(perceptron(), lambda f: dist.Normal(f[..., 0], 0.3)), (x, y)),
        "heteroscedastic": (Supervised(perceptron(2), heteroscedastic), (x, heavy)),
        "robust": (
            Supervised(perceptron(), lambda f: dist.StudentT(4.0, f[..., 0], 0.3)),
            (x, heavy),
        ),
        "logistic": (logistic, (x, binary)),
        "ordinal": (Supervised(perceptron(), ordinal), (x, grades)),
        "softmax": (
            Supervised(perceptron(3), lambda f: dist.Categorical(logits=f)),
            (x, grades.clip(max=2)),
        ),
        "Poisson": (poisson, (x, counts)),
        "hierarchical": (hierarchical, (group, grouped)),
        "residual": (Supervised(Residual(), lambda f: dist.Normal(f[..., 0], 0.3)), (x, y)),
        "layer norm": (Supervised(normalised(), lambda f: dist.Normal(f[..., 0], 0.3)), (x, y)),
        "two heads": (TwoHeads(), (x, y, binary)),
        "local latents": (local_latents, (x, y)),
    }
