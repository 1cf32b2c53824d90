"""Pyro's contenders of `peers.py`: this library and AutoNormal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from peers import DRAWS, HIDDEN, RATE, WEIGHT_SCALE, Found, Split, of_draws, timed, until_flat
from pyro.infer import SVI, Predictive, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam

from pyro_moments import DVIGuide, fit, linear_response, predict


def normal(name: str, scale: float, *shape: int) -> torch.Tensor:
    """A site of independent Normals."""
    return pyro.sample(name, dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))


def regression(x: Any, y: Any = None) -> None:
    """A line."""
    mean = x @ normal("weights", 1.0, 10) + normal("bias", 1.0)
    _observe(mean, y)


def network(x: Any, y: Any = None) -> None:
    """One hidden layer."""
    first = x @ normal("first", WEIGHT_SCALE, 10, HIDDEN)
    hidden = torch.relu(first + normal("bias", WEIGHT_SCALE, HIDDEN))
    _observe(hidden @ normal("last", WEIGHT_SCALE, HIDDEN) + normal("offset", WEIGHT_SCALE), y)


def _observe(mean: torch.Tensor, y: Any) -> None:
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    pyro.deterministic("mean", mean)
    with pyro.plate("rows", mean.shape[-1]):
        pyro.sample("obs", dist.Normal(mean, noise), obs=y)


MODELS: dict[str, Callable] = {"regression": regression, "network": network}


def tensors(data: Split) -> list[torch.Tensor]:
    """The data in single precision, after the random state is that of a new process."""
    torch.set_num_threads(1)
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    return [torch.as_tensor(part).float() for part in (data.x, data.y, data.x_test)]


def ours(task: str, data: Split) -> Found:
    """Newton's method and linear response of the regression, L-BFGS of the network."""
    tensors(data)
    model, arguments = MODELS[task], (torch.as_tensor(data.x), torch.as_tensor(data.y))
    method = "newton" if task == "regression" else "lbfgs"

    def run() -> tuple:
        result = fit(model, DVIGuide(), *arguments, method=method, float64=True, by_draws=False)
        linear = task == "regression"
        return result, linear_response(model, result, *arguments) if linear else None

    (result, response), seconds = timed(run)
    x, y = torch.as_tensor(data.x_test), torch.as_tensor(data.y_test)
    found = response.predict(x) if response else predict(model, result, x)
    deviations = response.standard_deviation("weights") if response else None
    return _closed(seconds, found["obs"], y, deviations)


def _closed(seconds: float, prediction: Any, y: torch.Tensor, deviations: Any = None) -> Found:
    interval = [end.detach() for end in prediction.interval(0.9)]
    return Found(seconds, prediction.log_prob(y).detach(), interval, deviations)


def autonormal(task: str, data: Split) -> Found:
    """Adam on a draw a step."""
    x, y, x_test = tensors(data)
    model, guide = MODELS[task], AutoNormal(MODELS[task])
    svi = SVI(model, guide, Adam({"lr": RATE}), TraceMeanField_ELBO())
    _, seconds = timed(lambda: until_flat(lambda: svi.step(x, y)))
    predictive = Predictive(model, guide=guide, num_samples=DRAWS, return_sites=["noise", "mean"])
    found = predictive(x_test)
    deviations = guide.scales.weights.detach() if task == "regression" else None
    return _drawn(seconds, data, found["mean"], found["noise"], deviations)


def _drawn(seconds: float, data: Split, means: Any, noise: Any, deviations: Any) -> Found:
    means, noise = means.detach().reshape(len(means), -1), noise.detach().reshape(-1, 1)
    return of_draws(seconds, data, means, noise, deviations)
