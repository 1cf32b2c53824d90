"""Contenders of `peers_uci.py` in torch: this library and others, in what their documents set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from peers import timed
from peers_uci import DRAWS, HIDDEN, RATE, STEPS, Found, mixture
from regression import Split
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from pyro_moments import DeterministicELBO, DVIGuide, fit, predict

torch.set_num_threads(1)
COMPILED = DeterministicELBO(compiled=True)


def layer(name: str, x: torch.Tensor, outputs: int) -> torch.Tensor:
    """A linear layer with weights N(0, 1)."""
    shape = [x.shape[-1], outputs]
    weight = pyro.sample(f"{name}.weight", dist.Normal(0.0, 1.0).expand(shape).to_event(2))
    bias = pyro.sample(f"{name}.bias", dist.Normal(0.0, 1.0).expand([outputs]).to_event(1))
    return x @ weight + bias


def network(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    """Mean and log variance of y."""
    out = layer("last", torch.relu(layer("first", x, HIDDEN)), 2)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(out[..., 0], torch.exp(0.5 * out[..., 1])), obs=y)


def tensors(data: Split, number: int) -> list[torch.Tensor]:
    """x, y [rows, 1] and test inputs, after the random state of the split."""
    pyro.clear_param_store()
    pyro.set_rng_seed(number)
    return [*map(torch.as_tensor, (data.x_train, data.y_train[:, None], data.x_test))]


def plain(inputs: int, outputs: int) -> nn.Sequential:
    """The network of torch."""
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


def ours(data: Split, number: int, objective: DeterministicELBO | None = None) -> Found:
    """All defaults."""
    x, y, x_test = tensors(data, number)
    options = {"objective": objective, "seed": number, "progress_bar": False}
    result, seconds = timed(lambda: fit(network, DVIGuide(), x, y[:, 0], **options))
    log_prob = predict(network, result, x_test)["y"].log_prob(torch.as_tensor(data.y_test))
    return Found(seconds, log_prob.detach())


def compiled(data: Split, number: int) -> Found:
    """All defaults but one: the loss is compiled, once for all splits of a set."""
    return ours(data, number, COMPILED)


def laplace(data: Split, number: int) -> Found:
    """Its example of a regression: 1000 epochs of Adam at 0.01 in batches of 150 rows, then 1000
    steps of Adam at 0.1 on the log marginal likelihood for prior precision and noise."""
    from laplace import Laplace

    x, y, x_test = tensors(data, number)

    def run() -> Any:
        net, loader = plain(x.shape[1], 1), DataLoader(TensorDataset(x, y), batch_size=150)
        adam = torch.optim.Adam(net.parameters(), lr=0.01)
        for _ in range(1000):
            for inputs, outcomes in loader:
                adam.zero_grad()
                functional.mse_loss(net(inputs), outcomes).backward()
                adam.step()
        found = Laplace(net, "regression", subset_of_weights="all", hessian_structure="kron")
        found.fit(loader)
        logs = [torch.ones(1, requires_grad=True) for _ in range(2)]
        adam = torch.optim.Adam(logs, lr=0.1)
        for _ in range(1000):
            adam.zero_grad()
            (-found.log_marginal_likelihood(*(part.exp() for part in logs))).backward()
            adam.step()
        return found

    found, seconds = timed(run)
    mean, variance = found(x_test)
    scale = (variance[:, 0, 0] + found.sigma_noise.item() ** 2).sqrt()
    return mixture(seconds, data, mean[:, 0].detach()[None], scale.detach()[None])


def bayesian(data: Split, number: int) -> Found:
    """The constants of its README, loss and all, on a net of two outputs and all rows at once."""
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    x, y, x_test = tensors(data, number)
    net = plain(x.shape[1], 2)
    constants = {
        "prior_mu": 0.0,
        "prior_sigma": 1.0,
        "posterior_mu_init": 0.0,
        "posterior_rho_init": -3.0,
        "type": "Reparameterization",
        "moped_enable": False,
        "moped_delta": 0.5,
    }

    def run() -> None:
        dnn_to_bnn(net, constants)
        adam = torch.optim.Adam(net.parameters(), lr=RATE)
        for _ in range(STEPS):
            adam.zero_grad()
            (_loss(net(x), y) + get_kl_loss(net) / len(x)).backward()
            adam.step()

    _, seconds = timed(run)
    with torch.no_grad():
        return _of_draws(seconds, data, torch.stack([net(x_test) for _ in range(DRAWS)]))


def tyxe(data: Split, number: int) -> Found:
    """Its VariationalBNN with weights N(0, 1) and AutoNormal; its softplus makes the scale."""
    import tyxe
    from pyro.infer.autoguide import AutoNormal

    x, y, x_test = tensors(data, number)
    prior = tyxe.priors.IIDPrior(dist.Normal(0.0, 1.0))
    likelihood = tyxe.likelihoods.HeteroskedasticGaussian(len(x))
    net = tyxe.VariationalBNN(plain(x.shape[1], 2), prior, likelihood, AutoNormal)
    _, seconds = timed(lambda: net.fit([((x,), y)], pyro.optim.Adam({"lr": RATE}), STEPS))
    out = net.predict(x_test, num_predictions=DRAWS, aggregate=False)
    return mixture(seconds, data, out[..., 0], functional.softplus(out[..., 1]))


def ensemble(data: Split, number: int) -> Found:
    """Five nets as in Lakshminarayanan et al. 2017, without adversarial examples: 40 epochs of Adam
    at 0.1 in batches of 100 rows."""
    x, y, x_test = tensors(data, number)
    nets = [plain(x.shape[1], 2) for _ in range(5)]

    def run() -> None:
        for net in nets:
            adam = torch.optim.Adam(net.parameters(), lr=0.1)
            for _ in range(40):
                for rows in torch.randperm(len(x)).split(100):
                    adam.zero_grad()
                    _loss(net(x[rows]), y[rows]).backward()
                    adam.step()

    _, seconds = timed(run)
    with torch.no_grad():
        return _of_draws(seconds, data, torch.stack([net(x_test) for net in nets]))


def _loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean of −log p(y); what has diverged stays NaN."""
    return -dist.Normal(*_normal(out), validate_args=False).log_prob(y[:, 0]).mean()


def _normal(out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return out[..., 0], torch.exp(0.5 * out[..., 1])


def _of_draws(seconds: float, data: Split, out: torch.Tensor) -> Found:
    return mixture(seconds, data, *(np.asarray(part) for part in _normal(out)))
