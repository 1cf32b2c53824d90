"""Steps of a public PyTorch port of deterministic variational inference, from its own files."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from timing import Step

SCALE = 0.05  # of the weights, as in the other contenders


def maker(checkout: Path) -> Callable[[tuple[int, ...], int], Step]:
    """What makes a step of a network of one size and one number of rows.

    Only layers and losses are used; what else the port imports for its data sets may be missing.
    """
    torch.set_num_threads(1)
    if importlib.util.find_spec("torchvision") is None:
        absent = types.ModuleType("torchvision")
        absent.datasets = absent.transforms = None
        sys.modules["torchvision"] = absent
    sys.path.insert(0, str(checkout))
    layers, losses = (importlib.import_module(f"core.{name}") for name in ("layers", "losses"))
    return partial(_step, layers, losses)


def _step(layers: ModuleType, losses: ModuleType, sizes: tuple[int, ...], rows: int) -> Step:
    """One ELBO of heteroscedastic regression with its gradients; covariances are full."""
    torch.manual_seed(0)
    network, options = _network(layers, sizes), _options(rows)
    loss, x, y = losses.RegressionLoss(network, options), torch.randn(rows, 13), torch.randn(rows)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        loss(network(x), y, 1)[0].backward()

    return step


def _network(layers: ModuleType, sizes: tuple[int, ...]) -> torch.nn.Sequential:
    first, *rest = itertools.pairwise(sizes)
    network = torch.nn.Sequential(
        layers.LinearGaussian(*first, certain=True), *(layers.ReluGaussian(*pair) for pair in rest)
    )
    with torch.no_grad():
        for layer in network:
            layer.W.normal_(std=layer.W.shape[0] ** -0.5)
            layer.bias.zero_()
            for logarithm in (layer.W_logvar, layer.bias_logvar):
                logarithm.fill_(SCALE**2).log_()
    return network


def _options(rows: int) -> argparse.Namespace:
    """The KL divergence has its full weight from the first step."""
    return argparse.Namespace(
        method="bayes",
        heteroskedastic=True,
        mcvi=False,
        homo_log_var_scale=0.0,
        device="cpu",
        warmup_updates=0,
        anneal_updates=1,
        batch_size=rows,
    )
