"""Report which weights a guide switches off, and leave out units."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from torch import nn

from moment_inference.criticism import PruningReport, idle_units, pruning
from pyro_moments.criticism.posteriors import posterior_of
from pyro_moments.evaluation.arguments import checked


@checked
def pruning_report(
    model: Callable,
    guide: Any,
    *data: Any,
    threshold: float | None = None,
    held_out: tuple | None = None,
    sites: Collection[str] | None = None,
    **named: Any,
) -> PruningReport:
    """Tell which weights and units a trained guide switches off, and what is left without them.

    A weight with posterior N(m, v) is off where log α = log v/m² is at least a threshold:
    its sign is then hardly known. The network is judged at the means of the other
    weights, by its log-likelihood and the share of right classes, on ``held_out`` if it
    is given.

    Args:
        model: Pyro model.
        guide: trained guide with Gaussian sites, or what ``fit`` returned.
        *data: what it was trained on, arguments of the model, with observations.
        threshold: log α from which a weight is off, such as 3; by default as many are off
            as leave the log-likelihood at most one standard error lower.
        held_out: other arguments of the model, with observations that were not trained
            on, a tuple; by default the network is judged on the data.
        sites: names of the sites to prune; by default all whose support is all real
            numbers.
        **named: arguments of the model by name.

    Returns:
        A ``PruningReport``: ``off`` and ``weights`` by site, ``units``, ``levels`` at other
        thresholds, bytes; it prints as a table.

    Raises:
        ValueError: if a site cannot be zero or is not there, or nothing is observed.
        UnsupportedMoments: if a site of the guide is not Gaussian.

    Source: Molchanov, Ashukha and Vetrov 2017, section 4, for log α; Louizos, Ullrich and
        Welling 2017 for units.

    Example:
        >>> pruning_report(model, result, x, y, held_out=(x_test, y_test))  # doctest: +SKIP
    """
    posterior = posterior_of(guide, model, data, named)
    with posterior.model_context():
        return pruning.pruning_report(posterior, threshold, held_out, sites)


ELEMENTWISE = (
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Softplus),
    *(nn.Tanh, nn.Sigmoid, nn.Identity, nn.Dropout),
)
CHAIN = "an nn.Sequential of nn.Linear and activations"


def smaller_network(net: nn.Sequential, report: PruningReport) -> nn.Sequential:
    """Return a plain network without the weights and the hidden units that are off.

    A unit goes if no weight leads to it, whose constant output the next biases take over,
    or if no layer takes it. What is left has the means of the weights that are kept,
    zeros where single ones are off, and the same outputs as the network with
    ``report.weights``. Parameters that are no sites stay as they are.

    Args:
        net: a chain of ``nn.Linear`` and activations of torch, also with priors of its
            parameters (``PyroModule``), which stays as it is.
        report: the report, with sites named like the parameters, also with a prefix:
            ``"0.weight"`` or ``"net.0.weight"``, ``"net/layers_0.kernel"`` in flax.

    Returns:
        The network on the CPU, in evaluation mode.

    Raises:
        TypeError: if the network has other parts.
        ValueError: if none of its parameters is a site of the report, or has another
            shape.

    Example:
        >>> small = smaller_network(model.net, report)  # doctest: +SKIP
    """
    parts = list(net)
    linear = [index for index, part in enumerate(parts) if isinstance(part, nn.Linear)]
    others = [part for part in parts if not isinstance(part, nn.Linear)]
    if not isinstance(net, nn.Sequential) or not linear or not _elementwise(others):
        unknown = [part for part in others if not _elementwise([part])]
        raise idle_units.no_chain(unknown[0] if unknown else net, CHAIN)
    chains = [nn.Sequential(*parts[a + 1 : b]).eval() for a, b in itertools.pairwise(linear)]
    layers = [_layer(str(index), parts[index], report) for index in linear]
    named_sites = {site for _, sites in layers for site in sites if site}
    if not named_sites:
        names = [f"{index}.{name}" for index in linear for name in ("weight", "bias")]
        raise idle_units.no_sites_of(names, report.weights)
    smaller = idle_units.without_idle_units(
        [layer for layer, _ in layers], [_as_numpy(chain) for chain in chains]
    )
    for index, layer in zip(linear, smaller, strict=True):
        parts[index] = _plain(layer)
    return nn.Sequential(*map(copy.deepcopy, parts)).eval()


def _elementwise(parts: Any) -> bool:
    return all(isinstance(part, ELEMENTWISE) for part in parts)


def _layer(
    name: str, module: Any, report: PruningReport
) -> tuple[idle_units.Dense, list[str | None]]:
    """Return the arrays of a layer, and the sites that they are of."""
    shapes = {"weight": (module.out_features, module.in_features), "bias": (module.out_features,)}
    sites = [idle_units.site_of(f"{name}.{part}", shapes[part], report.weights) for part in shapes]
    own = dict(module.named_parameters(recurse=False))
    arrays = [
        report.weights[site] if site is not None else _own(own.get(part), shapes[part])
        for part, site in zip(shapes, sites, strict=True)
    ]
    return idle_units.Dense(*arrays), sites


def _own(parameter: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a parameter that is no site; zeros for a layer without it."""
    return np.zeros(shape, np.float32) if parameter is None else parameter.detach().cpu().numpy()


def _as_numpy(chain: nn.Sequential) -> Callable[[np.ndarray], np.ndarray]:
    device = next((parameter.device for parameter in chain.parameters()), torch.device("cpu"))

    @torch.no_grad()
    def function(constants: np.ndarray) -> np.ndarray:
        return chain(torch.as_tensor(constants, device=device)).cpu().numpy()

    return function


@torch.no_grad()
def _plain(layer: idle_units.Dense) -> nn.Linear:
    weight, bias = (torch.as_tensor(part, device="cpu") for part in layer)
    module = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    module.weight.copy_(weight)
    module.bias.copy_(bias)
    return module
