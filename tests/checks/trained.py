"""Networks that were trained once, by ``make test-trained``: their parameters are in tests/data."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import torch
from safetensors.numpy import load_file, save_file

from tests.fitting.models import HOSTS
from tests.propagation.oracle import placed

DATA = Path(__file__).resolve().parents[1] / "data"
ANEW = "TRAIN_ANEW" in os.environ


def trained(name: str, how: str, train: Callable[[], Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Parameters of a guide, and what else a training found.

    Args:
        name: of the file.
        how: the training in words, kept in the file: seed, method, steps.
        train: trains; called by ``make test-trained`` only.
    """
    path = DATA / f"{name}.safetensors"
    if ANEW:
        found = {key: np.array(_plain(value), order="C") for key, value in train().items()}
        save_file(found, path, metadata={"command": "make test-trained", "training": how})
    return load_file(path)


def _plain(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def loss_at(
    objective: Any, model: Callable, guide: Any, params: Mapping[str, Any], *data: Any
) -> torch.Tensor:
    """The loss of a guide in Pyro at its trained parameters, with gradients."""
    pyro.clear_param_store()
    placed(HOSTS["pyro"], model, guide, {k: torch.tensor(v) for k, v in params.items()}, *data)
    return objective.differentiable_loss(model, guide, *data)


def slopes(loss: torch.Tensor) -> dict[str, np.ndarray]:
    """Derivatives of a loss in Pyro by the parameters, which may be constrained."""
    values = dict(pyro.get_param_store().items())
    free = [value.unconstrained() for value in values.values()]
    by_free = torch.autograd.grad(loss, free, retain_graph=True)  # of all at once: one sweep
    total = torch.stack([value.sum() for value in values.values()]).sum()
    of_values = torch.autograd.grad(total, free)
    return {
        name: (slope / derivative).numpy()
        for name, slope, derivative in zip(values, by_free, of_values, strict=True)
    }


def decrease(params: Mapping[str, Any], slopes: Mapping[str, np.ndarray]) -> float:
    """The nats by which a step of natural gradient would lower a loss: 0 at an optimum.

    It tells whether stored parameters are still where the present rules lead.

    ½ gᵀ F⁻¹ g with F of a mean-field guide: 1/σ² for locations, 2/σ² for the scales. What has no
    scale, as a guide by dropout, counts as as wide as it is large.
    """
    total = 0.0
    for name, slope in slopes.items():
        scale = _plain(params.get(name.replace(".locs.", ".scales."), params[name]))
        total += (0.25 if ".scales." in name else 0.5) * np.square(slope * scale).sum()
    return float(total)
