"""Models of posteriordb trained, and sampled from, in Pyro."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from posteriors_models import Host
from posteriors_nuts import CHAINS, DRAWS
from pyro.infer import MCMC, NUTS
from torch.distributions import transform_to

from pyro_moments import DVIGuide, Fit, LinearResponse, fit, linear_response
from pyro_moments.fitting.precision import double_precision

STRIDE = 0.1  # of Runge and Kutta, in the units of the models' times


def scanned(step: Callable, state: Any, inputs: Any) -> tuple[Any, torch.Tensor]:
    """``jax.lax.scan``, as the loop that it is in torch."""
    outputs = []
    for now in zip(*inputs, strict=True) if isinstance(inputs, tuple) else inputs:
        state, output = step(state, now)
        outputs.append(output)
    return state, torch.stack(outputs)


def integrated(derivative: Callable, start: Any, times: np.ndarray, parameters: Any) -> Any:
    """By the classical method of Runge and Kutta: torch has no solver."""
    states = [start]
    for begun, ended in pairwise(times):
        state, strides = states[-1], round((ended - begun) / STRIDE)
        for part in range(strides):
            state = _stride(derivative, state, torch.tensor(begun + part * STRIDE), parameters)
        states.append(state)
    return torch.stack(states)


def _stride(derivative: Callable, state: Any, time: torch.Tensor, parameters: Any) -> Any:
    first = derivative(state, time, parameters)
    second = derivative(state + STRIDE / 2 * first, time + STRIDE / 2, parameters)
    third = derivative(state + STRIDE / 2 * second, time + STRIDE / 2, parameters)
    fourth = derivative(state + STRIDE * third, time + STRIDE, parameters)
    return state + STRIDE / 6 * (first + 2 * second + 2 * third + fourth)


HOST = Host(pyro, dist, torch.tensor, torch, scanned, integrated)


def trained(make: Callable[[], Callable], method: str) -> tuple[Fit, dict[str, Any]]:
    """The fit of a model, and location and scale by site."""
    pyro.clear_param_store()
    torch.manual_seed(0)
    found = fit(make(), DVIGuide(), method=method, float64=True)
    sites = {name.rpartition("locs.")[2] for name in found.params if ".locs." in name}
    part = lambda site, what: found.params[f"DVIGuide.{what}s.{site}"].numpy()  # noqa: E731
    return found, {site: (part(site, "loc"), part(site, "scale")) for site in sites}


def fresh_fit(seed: int, model: Callable, *data: Any, **options: Any) -> Fit:
    """A fit from a start of its own."""
    pyro.clear_param_store()
    torch.manual_seed(seed)
    return fit(model, DVIGuide(), *data, **options)


def doubles() -> Any:
    """A context of double precision."""
    return double_precision()


def response_of(model: Callable, found: Fit, data: list[Any]) -> LinearResponse:
    """Linear response about a fit of these data."""
    return linear_response(model, found.guide, *data, tolerance=1.0)


def nuts(make: Callable[[], Callable], watch: Callable) -> list[dict[str, torch.Tensor]]:
    """Chain after chain: of several, ``MCMC`` makes processes where there are processors."""
    found = []
    for _ in range(CHAINS):
        kernel = NUTS(make(), max_plate_nesting=1, init_strategy=anywhere)
        sampler = MCMC(kernel, DRAWS, DRAWS, disable_progbar=True, hook_fn=watch)
        sampler.run()
        found.append(sampler.get_samples())
    return found


def compiled_nuts(make: Callable[[], Callable]) -> None:
    """Nothing is compiled."""


def anywhere(site: dict[str, Any]) -> torch.Tensor:
    """Pyro's ``init_to_uniform``, but for its draw from the prior: flat ones have none."""
    unconstrained = 4 * torch.rand(site["fn"].shape(), dtype=torch.float64) - 2
    return transform_to(site["fn"].support)(unconstrained)
