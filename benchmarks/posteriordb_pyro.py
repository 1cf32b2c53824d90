"""The approximations of posteriordb's posteriors in Pyro: draws of every site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import torch
from posteriors_pyro import HOST, anywhere, nuts
from pyro.infer import SVI, Trace_ELBO, autoguide
from pyro.optim import LambdaLR

import pyro_moments
from pyro_moments import DVIGuide, fit

__all__ = ["HOST", "automatic", "fitted", "mean_field", "nuts", "responded"]


def forget() -> None:
    """Nothing is kept from one posterior to the next."""


def fitted(make: Callable[[], Callable]) -> tuple[Any, ...]:
    """Model, guide and fit, by Newton's method."""
    _start()
    model, guide = make(), DVIGuide()
    return model, guide, fit(model, guide, method="newton", float64=True)


def mean_field(found: tuple[Any, ...], draws: int) -> dict[str, Any]:
    """Of what ``fitted`` gives."""
    return _drawn(found[1], draws)


def responded(found: tuple[Any, ...], draws: int) -> dict[str, Any]:
    """Of what ``fitted`` gives."""
    model, guide, result = found
    response = pyro_moments.linear_response(model, guide, params=result.params, float64=True)
    return response.sample(draws)


def automatic(
    name: str, make: Callable[[], Callable], steps: int, rate: Callable, draws: int
) -> dict[str, Any]:
    """A guide of the host, by its own ELBO of one draw.

    Args:
        name: of the guide.
        make: the model to approximate.
        steps: of Adam.
        rate: of learning, by the step.
        draws: how many.
    """
    _start()
    model = make()
    guide = getattr(autoguide, name)(model, init_loc_fn=anywhere)
    schedule = {"optimizer": torch.optim.Adam, "optim_args": {"lr": 1.0}, "lr_lambda": rate}
    optimiser = LambdaLR(schedule)
    svi = SVI(model, guide, optimiser, Trace_ELBO())
    for _ in range(steps):
        svi.step()
        optimiser.step()
    return _drawn(guide, draws)


def _start() -> None:
    pyro.clear_param_store()
    torch.manual_seed(0)


def _drawn(guide: Callable, draws: int) -> dict[str, Any]:
    """All at once, in a plate left of the models' own."""
    with torch.no_grad(), pyro.plate("draws", draws, dim=-2):
        sites = guide()
    flat = {name: value.reshape(draws, -1) for name, value in sites.items()}
    return {name: value[:, 0] if value.shape[1] == 1 else value for name, value in flat.items()}
