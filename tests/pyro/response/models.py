"""Small models in double precision, and their data."""

import numpy as np
import pyro
import pyro.distributions as dist
import torch

_RNG = np.random.default_rng(0)
X = torch.tensor(_RNG.normal(size=[40, 3]) @ np.array([[1, 0.9, 0], [0, 0.3, 0], [0, 0, 1.0]]))
Y = X @ torch.tensor([1.0, 2, -1]).double() + torch.tensor(_RNG.normal(size=40)) / 2
COUNTS = torch.tensor(_RNG.poisson(np.exp(X.numpy() @ [0.5, -0.3, 0.2])).astype(float))


def double(number):
    return torch.tensor(number, dtype=torch.float64)


def regression(x, y=None):
    b = pyro.sample("b", dist.Normal(double(0.0), double(2.0)).expand([3]).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ b, 0.5), obs=y)


def counts(x, y=None, weights=None, loc=0.0, rate=2.0):
    """Of a Poisson regression; a datum besides, with a positive latent."""
    b = pyro.sample("b", dist.Normal(double(loc), double(1.0)).expand([3]).to_event(1))
    a = pyro.sample("a", dist.Gamma(double(2.0), double(rate)))
    weights = torch.ones(len(x)).double() if weights is None else weights
    with pyro.plate("data", len(x)), pyro.poutine.scale(scale=weights):
        pyro.sample("y", dist.Poisson(torch.exp(x @ b)), obs=y)
    pyro.sample("z", dist.Normal(a, double(1.0)), obs=double(1.3))


def groups(y):
    """Means of groups around a common one."""
    mu = pyro.sample("mu", dist.Normal(double(0.0), double(3.0)))
    with pyro.plate("groups", 4):
        theta = pyro.sample("theta", dist.Normal(mu, double(1.0)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(theta, double(1.5)), obs=y)
