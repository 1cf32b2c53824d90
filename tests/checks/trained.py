"""Networks that were trained once, by ``make test-trained``: their parameters are in tests/data."""

from __future__ import annotations

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


def decrease(loss: torch.Tensor) -> float:
    """The nats by which a step of natural gradient would lower a loss in Pyro: 0 at an optimum.

    It tells whether stored parameters are still where the present rules lead.

    ½ gᵀ F⁻¹ g with F of a mean-field guide: 1/σ² for locations, 2 for the logarithms of the scales.
    """
    store, total = pyro.get_param_store(), 0.0
    scales = {name.replace(".scales.", ".locs."): store[name] for name in store if "scales" in name}
    for name, scale in scales.items():
        free = scale.unconstrained()
        by_loc, by_free = torch.autograd.grad(loss, [store[name], free], retain_graph=True)
        slope = torch.autograd.grad(scale.sum(), free, retain_graph=True)[0]
        total += 0.5 * (by_loc * scale).square().sum().item()
        total += 0.25 * (by_free / slope * scale).square().sum().item()
    return total
