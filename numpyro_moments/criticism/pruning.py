"""Report which weights a guide switches off, and leave out units."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus import errors
from moment_inference.criticism import PruningReport, idle_units, pruning
from numpyro_moments.criticism.posteriors import Keys, posterior_of
from numpyro_moments.evaluation.arguments import checked


@checked
def pruning_report(
    model: Callable,
    guide: Any,
    *data: Any,
    params: dict[str, Any] | None = None,
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
        model: NumPyro model.
        guide: trained guide with Gaussian sites, or what ``fit`` returned.
        *data: what it was trained on, arguments of the model, with observations.
        params: trained parameters of guide and model, unless ``guide`` is a ``Fit``.
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
    key = Keys.of(jax.random.key(0))
    posterior = posterior_of(guide, model, data, named, params, key)
    with posterior.model_context():
        return pruning.pruning_report(posterior, threshold, held_out, sites)


CHAIN = "a Sequential of flax (linen or nnx) of dense layers and activations"
ACTIVATIONS = (
    "relu leaky_relu elu selu gelu silu swish softplus tanh sigmoid soft_sign relu6 hard_tanh celu "
    "log_sigmoid identity"
).split()


def smaller_network(net: Any, report: PruningReport, params: Any = None) -> Any:
    """Return a plain network without the weights and the hidden units that are off.

    A unit goes if no weight leads to it, whose constant output the next biases take over,
    or if no layer takes it. What is left has the means of the weights that are kept,
    zeros where single ones are off, and the same outputs as the network with
    ``report.weights``.

    Args:
        net: a chain of dense layers and activations: ``flax.linen.Sequential`` of
            ``nn.Dense``, or ``flax.nnx.Sequential`` of ``nnx.Linear``, which stays as it
            is.
        report: the report, with sites named like the parameters, also with a prefix:
            ``"0.weight"`` or ``"net.0.weight"``, ``"net/layers_0.kernel"`` in flax.
        params: values of the parameters that are no sites, as ``fit`` keeps them:
            ``fit.params["net$params"]``. The network's own were never trained.

    Returns:
        Of nnx the network; of linen the network and its variables.

    Raises:
        ImportError: if flax is missing.
        TypeError: if the network has other parts.
        ValueError: if none of its parameters is a site of the report, or has another
            shape; if one is neither a site nor among ``params``.

    Example:
        >>> rest = fit.params["net$params"]  # doctest: +SKIP
        >>> small, variables = smaller_network(net, report, rest)  # doctest: +SKIP
    """
    errors.optional_package("flax", "smaller_network takes networks of flax", "flax")
    from flax import linen, nnx

    if not isinstance(net, linen.Sequential | nnx.Sequential):
        raise idle_units.no_chain(net, CHAIN)
    is_linen = isinstance(net, linen.Sequential)
    parts, kind = list(net.layers), linen.Dense if is_linen else nnx.Linear
    dense = [index for index, part in enumerate(parts) if isinstance(part, kind)]
    for part in parts:
        if not isinstance(part, kind) and getattr(part, "__name__", "") not in ACTIVATIONS:
            raise idle_units.no_chain(part, CHAIN)
    form = "layers_{}.{}" if is_linen else "layers.{}.{}"
    own = params or {} if is_linen else (params or {}).get("layers", {})
    key = "layers_{}".format if is_linen else int
    read = [
        {
            part: _array(form.format(index, part), report, own.get(key(index), {}).get(part))
            for part in ("kernel", "bias")
            if part == "kernel" or _has_bias(parts[index])
        }
        for index in dense
    ]
    if not any(found for arrays in read for _, found in arrays.values()):
        names = [form.format(index, part) for index in dense for part in ("kernel", "bias")]
        raise idle_units.no_sites_of(names, report.weights)
    layers = [_dense(**{part: array for part, (array, _) in arrays.items()}) for arrays in read]
    between = [_as_numpy(parts[a + 1 : b]) for a, b in itertools.pairwise(dense)]
    smaller = idle_units.without_idle_units(layers, between)
    make = _linen if is_linen else _nnx
    return make(parts, dict(zip(dense, smaller, strict=True)))


def _has_bias(module: Any) -> bool:
    return bool(module.use_bias)


def _array(name: str, report: PruningReport, own: Any) -> tuple[np.ndarray, bool]:
    """Return a parameter, of the report or of those that are no sites, and whether it is a site."""
    site = idle_units.site_of(name, None, report.weights)
    if site is not None:
        return report.weights[site], True
    if own is None:
        raise idle_units.not_given(name, report.weights)
    return np.asarray(own), False


def _dense(kernel: np.ndarray, bias: np.ndarray | None = None) -> idle_units.Dense:
    return idle_units.Dense(
        kernel.T, np.zeros(kernel.shape[1], kernel.dtype) if bias is None else bias
    )


def _as_numpy(functions: list[Callable]) -> Callable[[np.ndarray], np.ndarray]:
    def composed(constants: np.ndarray) -> np.ndarray:
        value = jnp.asarray(constants)
        for function in functions:
            value = function(value)
        return np.asarray(value)

    return composed


def _linen(parts: list[Any], smaller: dict[int, idle_units.Dense]) -> tuple[Any, dict[str, Any]]:
    from flax import linen

    layers = [
        linen.Dense(len(smaller[index].bias)) if index in smaller else part
        for index, part in enumerate(parts)
    ]
    params = {
        f"layers_{index}": {"kernel": jnp.asarray(layer.weight.T), "bias": jnp.asarray(layer.bias)}
        for index, layer in smaller.items()
    }
    return linen.Sequential(layers), {"params": params}


def _nnx(parts: list[Any], smaller: dict[int, idle_units.Dense]) -> Any:
    from flax import nnx

    layers = list(parts)
    for index, layer in smaller.items():
        outputs, inputs = layer.weight.shape
        layers[index] = nnx.Linear(inputs, outputs, rngs=nnx.Rngs(0))
        layers[index].kernel = nnx.Param(jnp.asarray(layer.weight.T))
        layers[index].bias = nnx.Param(jnp.asarray(layer.bias))
    return nnx.Sequential(*layers)
