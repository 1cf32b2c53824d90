"""Contenders of `peers.py` that are libraries of their own, and MC dropout in plain torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from peers import DRAWS, HIDDEN, RATE, WEIGHT_SCALE, Found, Split, of_draws, timed, until_flat
from peers_pyro import tensors
from torch import nn

DROPPED = 0.1


def dadvi(task: str, data: Split) -> Found:
    """Thirty fixed draws, mean field, by trust-region Newton steps."""
    import pymc
    import pymc_extras.inference

    with pymc.Model() as model:
        weights = pymc.Normal("weights", 0.0, 1.0, shape=10)
        bias = pymc.Normal("bias", 0.0, 1.0)
        noise = pymc.HalfNormal("noise", 1.0)
        pymc.Normal("obs", data.x @ weights + bias, noise, observed=data.y)
    options = {"n_draws": DRAWS, "random_seed": 0, "progressbar": False}
    found, seconds = timed(lambda: pymc_extras.inference.fit_dadvi(model, **options))
    draws = {name: part.values[0] for name, part in found.posterior.data_vars.items()}
    means = draws["weights"] @ data.x_test.T + draws["bias"][:, None]
    deviations = draws["weights"].std(0)
    return of_draws(seconds, data, means, draws["noise"][:, None], deviations)


def plain(*between: nn.Module) -> nn.Sequential:
    """The network of torch, with modules before its last layer."""
    return nn.Sequential(nn.Linear(10, HIDDEN), nn.ReLU(), *between, nn.Linear(HIDDEN, 1))


def tyxe(task: str, data: Split) -> Found:
    """Its VariationalBNN, the noise a parameter: a second guide meets the first one's sites."""
    import pyro
    import pyro.distributions as dist
    import tyxe
    from pyro.infer.autoguide import AutoNormal
    from pyro.nn import PyroParam

    x, y, x_test = tensors(data)
    prior = tyxe.priors.IIDPrior(dist.Normal(0.0, WEIGHT_SCALE))
    scale = PyroParam(torch.tensor(1.0), constraint=dist.constraints.positive)
    likelihood = tyxe.likelihoods.HomoskedasticGaussian(len(x), scale=scale)
    net = tyxe.VariationalBNN(plain(), prior, likelihood, AutoNormal)
    best = [np.inf, 0.0]

    def flat(_: Any, epoch: int, loss: float) -> bool:
        """The rule of `until_flat`, as a callback."""
        best[1] += loss / 250
        if (epoch + 1) % 250:
            return False
        ended = best[1] > best[0] - 0.1
        best[:] = [min(best), 0.0]
        return ended

    loader, adam = [((x,), y[:, None])], pyro.optim.Adam({"lr": RATE})
    _, seconds = timed(lambda: net.fit(loader, adam, 20_000, flat))
    means = net.predict(x_test, num_predictions=DRAWS, aggregate=False)[..., 0]
    noise = net.likelihood.scale.item()
    return of_draws(seconds, data, means, np.full((DRAWS, 1), noise))


def laplace(task: str, data: Split) -> Found:
    """A point estimate, a Kronecker-factored curvature about it, and the evidence for the rest."""
    from laplace import Laplace

    x, y, x_test = tensors(data)
    net = plain()

    def run() -> Any:
        _train(net, x, y)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y[:, None]), len(x))
        found = Laplace(net, "regression", subset_of_weights="all", hessian_structure="kron")
        found.fit(loader)
        _by_evidence(found)
        return found

    found, seconds = timed(run)
    mean, variance = found(x_test)
    scale = (variance[:, 0, 0] + found.sigma_noise.item() ** 2).sqrt().detach()
    return of_draws(seconds, data, mean[:, 0].detach()[None], scale[None])


def _by_evidence(found: Any) -> None:
    """Put noise and prior at the optimum of the marginal likelihood."""
    logs = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    adam = torch.optim.Adam(logs, lr=0.1)
    for _ in range(100):
        adam.zero_grad()
        (-found.log_marginal_likelihood(*(part.exp() for part in logs))).backward()
        adam.step()


def dropout(task: str, data: Split) -> Found:
    """Masks of the hidden units in training and in predictions; the noise is learnt."""
    x, y, x_test = tensors(data)
    net = plain(nn.Dropout(DROPPED))
    noise, seconds = timed(lambda: _train(net, x, y))
    with torch.no_grad():
        means = torch.stack([net(x_test)[:, 0] for _ in range(DRAWS)])
    return of_draws(seconds, data, means, np.full((DRAWS, 1), noise))


def _train(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Adam on the joint density of a network with unknown noise; the noise."""
    log_noise = torch.zeros((), requires_grad=True)
    adam = torch.optim.Adam([*net.parameters(), log_noise], lr=RATE)

    def step() -> float:
        adam.zero_grad()
        residual = (y - net(x)[:, 0]) / log_noise.exp()
        squares = sum(part.square().sum() for part in net.parameters())
        loss = 0.5 * (residual.square().sum() + squares / WEIGHT_SCALE**2) + len(y) * log_noise
        loss.backward()
        adam.step()
        return loss.item()

    until_flat(step)
    return log_noise.exp().item()
