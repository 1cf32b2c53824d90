"""Models as users write them, unmodified: networks by PyroSample, plain functions, regressions."""

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from torch import nn

HIDDEN, INPUTS, POINTS = 8, 3, 20


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(POINTS, INPUTS, generator=generator)
    noise = torch.randn(POINTS, generator=generator)
    return x, torch.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.2 * noise


def observe(x, fn, y):
    """Rows of data under a plate."""
    with pyro.plate("data", len(x)):
        return pyro.sample("obs", fn, obs=y)


def make_bayesian(module: nn.Module) -> nn.Module:
    """Turn every Linear of a module Bayesian, as Pyro's tutorials do."""
    pyro.nn.module.to_pyro_module_(module)
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            weight, bias = layer.weight.shape, layer.bias.shape
            layer.weight = PyroSample(dist.Normal(0.0, 1.0).expand(weight).to_event(2))
            layer.bias = PyroSample(dist.Normal(0.0, 1.0).expand(bias).to_event(1))
    return module


class Regression(PyroModule):
    """Any network with one output and Gaussian noise."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = make_bayesian(network)

    def forward(self, x, y=None):
        mean = self.network(x).squeeze(-1)
        return observe(x, dist.Normal(mean, 0.3), y)


def sequential(hidden_layers: int = 1, activation: type[nn.Module] = nn.ReLU) -> Regression:
    layers: list[nn.Module] = [nn.Linear(INPUTS, HIDDEN), activation()]
    for _ in range(hidden_layers - 1):
        layers += [nn.Linear(HIDDEN, HIDDEN), activation()]
    return Regression(nn.Sequential(*layers, nn.Linear(HIDDEN, 1)))


def plain_function(x, y=None):
    """A network written by hand, with @ and torch.relu."""
    w1 = pyro.sample("w1", dist.Normal(0.0, 1.0).expand([INPUTS, HIDDEN]).to_event(2))
    b1 = pyro.sample("b1", dist.Normal(0.0, 1.0).expand([HIDDEN]).to_event(1))
    w2 = pyro.sample("w2", dist.Normal(0.0, 1.0).expand([HIDDEN, 1]).to_event(2))
    hidden = torch.relu(x @ w1 + b1)
    mean = (hidden @ w2)[:, 0]
    return observe(x, dist.Normal(mean, 0.3), y)


class Residual(nn.Module):
    """Two residual blocks between linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, HIDDEN)
        self.blocks = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(2)])
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = h + torch.relu(block(h))
        return self.last(h)


def residual() -> Regression:
    return Regression(Residual())


def standard():
    """The prior of the weights, in the dtype of the moment."""
    return dist.Normal(0.0, 1.0).expand([INPUTS]).to_event(1)


def regression(likelihood, prior=standard):
    """A regression whose likelihood is a function of the linear predictor x @ w."""

    def model(x, y=None, subsample=None):
        w = pyro.sample("w", prior())
        with pyro.plate("data", len(x), subsample=subsample) as index:
            y = None if y is None else y[index]
            return pyro.sample("obs", likelihood(x[index] @ w), obs=y)

    return model


def with_precision(x, y):
    """A linear regression whose noise has a precision that is latent."""
    w = pyro.sample("w", standard())
    precision = pyro.sample("precision", dist.Gamma(2.0, 1.0))
    observe(x, dist.Normal(x @ w, precision.rsqrt()), y)


def subsampled(x, y, size=20):
    """A linear regression that draws a subsample of its data."""
    w = pyro.sample("w", standard())
    with pyro.plate("data", len(x), subsample_size=size) as index:
        pyro.sample("obs", dist.Normal(x[index] @ w, 0.5), obs=y[index])


def linear_regression(x, y=None):
    """Bayesian linear regression with a vector site."""
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([INPUTS]).to_event(1))
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    return observe(x, dist.Normal(x @ w + b, 0.3), y)


class Heteroscedastic(PyroModule):
    """Mean and log-variance sliced from one output."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))
        self.network = make_bayesian(layers)

    def forward(self, x, y=None):
        out = self.network(x)
        with pyro.plate("data", x.shape[0]):
            scale = torch.exp(0.5 * out[..., 1])
            return pyro.sample("obs", dist.Normal(out[..., 0], scale), obs=y)


class Classifier(PyroModule):
    """Softmax classification with three classes."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 3))
        self.network = make_bayesian(layers)

    def forward(self, x, y=None):
        logits = self.network(x)
        return observe(x, dist.Categorical(logits=logits), y)
