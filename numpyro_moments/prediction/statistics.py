"""Normalise and initialise networks of flax by statistics that are propagated analytically."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

try:
    from flax import nnx
except ImportError as error:
    raise ImportError(
        'normalisation by statistics needs flax: pip install "pyro-moments[numpyro,flax]"'
    ) from error

from moment_calculus.numerics import private_apis
from moment_calculus.predictions import Moments, as_value, statistics
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Value
from numpyro_moments._host import new_primitive, shaped
from numpyro_moments.evaluation.interpreter import Interpreter

# Layers of the pass that runs, each with mean and variance of its channels.
_FOUND: ContextVar[list[tuple[Any, Any, Any]] | None] = ContextVar("a pass", default=None)
_mean_p = new_primitive("channel_mean", lambda x, *, axis: shaped((x.shape[axis],), x.dtype))
_variance_p = new_primitive(
    "channel_variance", lambda x, *, axis: shaped((x.shape[axis],), x.dtype)
)
_copies_p = new_primitive("pixel_copies", lambda x, *, shape: shaped(shape, x.dtype))


def _channel_mean(x: Value, *, axis: int) -> jax.Array:
    """Return the mean of each channel, a certain array."""
    return statistics.channel_statistics(x, axis)[0]


def _channel_variance(x: Value, *, axis: int) -> jax.Array:
    """Return the variance of each channel, a certain array."""
    return statistics.channel_statistics(x, axis)[1]


def _pixel_copies(x: Value, *, shape: tuple[int, ...]) -> Value:
    """Return independent pixels with the moments of one pixel."""

    def arranged(array: jax.Array) -> jax.Array:
        if len(shape) == 2:  # for a linear map behind a flattening, the channels last
            return jnp.tile(array, (1, shape[1] // array.shape[1]))
        return jnp.broadcast_to(array, shape)

    return statistics.independent_copies(x, arranged)


_RULES: dict[str, Callable] = {
    "channel_mean": _channel_mean,
    "channel_variance": _channel_variance,
    "pixel_copies": _pixel_copies,
}


class AnalyticNorm(nnx.Module):
    """Normalise channels by statistics of the data that are propagated analytically.

    y = γ (x − E[x]) / √(Var[x] + ε) + β, where mean and variance of each channel are those
    that :func:`propagate_statistics` computes from the statistics of the data, not those of a
    batch: rows do not depend on each other, training and evaluation are the same function, and
    gradients go through the statistics to the weights before the layer. Call that function in
    the loss of a training, since they change with the weights, and once after it. The layer
    also takes uncertain inputs. Inside of ``jax.jit`` nothing raises where there are no
    statistics: the result is not a number.

    Pixels are taken as independent; for the errors see the class of that name in
    ``pyro_moments``, which gives the same numbers.

    Args:
        channels: number of channels.
        eps: added to the variances.
        affine: whether there are a scale γ [channels] and a bias β [channels] to learn.
        axis: of the channels in what is normalised.

    Raises:
        ValueError: from a call, if there are no statistics yet.

    Source: Shekhovtsov et al. 2018, section 4; Shekhovtsov and Flach 2018.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> net = nnx.Sequential(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), AnalyticNorm(2))
        >>> propagate_statistics(net, mean=jnp.zeros(3), variance=jnp.ones(3))
        >>> net(jnp.ones((5, 3))).shape
        (5, 2)
    """

    def __init__(
        self, channels: int, eps: float = 1e-5, *, affine: bool = True, axis: int = -1
    ) -> None:
        self.eps, self.axis = eps, axis
        self.scale = nnx.Param(jnp.ones(channels)) if affine else nnx.data(None)
        self.bias = nnx.Param(jnp.zeros(channels)) if affine else nnx.data(None)
        self.mean = nnx.BatchStat(jnp.full(channels, jnp.nan))
        self.variance = nnx.BatchStat(jnp.full(channels, jnp.nan))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise.

        Args:
            x: [..., channels, ...], the channels at ``axis``.

        Returns:
            The same shape, with channels of mean 0 and variance 1 over the data before scale and
            bias.
        """
        mean, variance = self.mean[...], self.variance[...]
        if (found := _FOUND.get()) is not None:
            mean, variance = _statistics(x, self.axis)
            found.append((self, mean, variance))
        elif not private_apis.is_traced(mean) and bool(jnp.isnan(mean).any()):
            raise statistics.without_statistics("propagate_statistics(net, mean=…, variance=…)")
        along = functools.partial(statistics.along_axis, axis=self.axis, rank=x.ndim)
        y = (x - along(mean)) * along(lax.rsqrt(variance + self.eps))
        return (
            y
            if self.scale is None or self.bias is None
            else y * along(self.scale[...]) + along(self.bias[...])
        )


def propagate_statistics(net: nnx.Module, mean: jax.Array, variance: jax.Array) -> None:
    """Give every :class:`AnalyticNorm` of a network the statistics of its inputs over the data.

    One pass of a single pixel, or of one datum, by diagonal covariance: convolutions, and
    linear maps behind a flattening, see independent pixels with the same moments. Gradients of
    what the layers return go through this pass. The layers are changed in place, also inside
    of ``nnx.jit`` and ``nnx.grad``. The network is one of flax's ``nnx``; a single pixel does
    not go through pools, which are functions there.

    Args:
        net: network with convolutions, linear maps and activations; dropout and batch
            normalisation in evaluation.
        mean: mean of each channel of the data [channels]; or of each entry of a datum, in its
            shape, if a single pixel does not go through.
        variance: variances in the same shape.

    Raises:
        ValueError: if a single pixel does not go through a layer.
        UnsupportedMoments: if an operation has no moment rule.

    Source: Shekhovtsov et al. 2018, section 4.

    Example:
        >>> import jax.numpy as jnp
        >>> norm = AnalyticNorm(2)
        >>> propagate_statistics(norm, mean=jnp.zeros(2), variance=jnp.ones(2))
        >>> norm.variance[...].tolist()
        [1.0, 1.0]
    """
    for layer, centre, spread in _pass(net, mean, variance, lambda layer, output: output):
        layer.mean[...], layer.variance[...] = centre, spread


def initialise_from_statistics(net: nnx.Module, mean: jax.Array, variance: jax.Array) -> None:
    """Scale and shift each layer so that its outputs have mean 0 and variance 1 over the data.

    Convolutions and linear maps are changed in place, one after the other as the network runs,
    by one pass of a single pixel, or of one datum (:func:`propagate_statistics`): for each
    output channel the weights are divided by the standard deviation, and the bias becomes what
    takes the mean away. Earlier biases have no effect. A layer that is used more than once is
    changed by its first use. Other layers stay as they are.

    Pixels are taken as independent; for the errors see the function of that name in
    ``pyro_moments``, which gives the same numbers.

    Args:
        net: network, as in :func:`propagate_statistics`; its layers have biases.
        mean: mean of each channel of the data [channels], or of each entry of a datum in its
            shape.
        variance: variances in the same shape.

    Raises:
        ValueError: if a layer has no bias, or the variance of a channel is zero.
        UnsupportedMoments: if an operation has no moment rule.

    Source: Shekhovtsov et al. 2018, section 4; Shekhovtsov and Flach 2018.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> net = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        >>> initialise_from_statistics(net, mean=jnp.zeros(3), variance=jnp.ones(3))
        >>> jnp.linalg.norm(net.kernel[...], axis=0).round(4).tolist()
        [1.0, 1.0]
    """
    names = {id(layer): _name(path) for path, layer in _layers(net)}
    statistics.check_biases(
        {_name(path): layer.bias is not None for path, layer in _layers(net)}, "use_bias=True"
    )
    used: dict[int, tuple[Any, Any]] = {}

    def normalised(layer: nnx.Module, output: jax.Array) -> jax.Array:
        if id(layer) not in used:
            used[id(layer)] = _statistics(output, -1)
            found = _FOUND.get()
            assert found is not None
            found.append((layer, *used[id(layer)]))
        mean, variance = used[id(layer)]
        return (output - mean) * lax.rsqrt(variance)

    for layer, centre, spread in _pass(net, mean, variance, normalised):
        if isinstance(layer, AnalyticNorm):
            continue
        statistics.check_variances(names[id(layer)], spread)
        scale = lax.rsqrt(spread)
        layer.kernel[...] = layer.kernel[...] * scale
        layer.bias[...] = (layer.bias[...] - centre) * scale


def _pass(
    net: nnx.Module, mean: jax.Array, variance: jax.Array, changed: Callable
) -> list[tuple[Any, jax.Array, jax.Array]]:
    """Run a network on the moments of a pixel or a datum; return what its layers found.

    ``changed`` gets each layer with a weight, and what it returns.
    """
    mean, variance = jnp.asarray(mean), jnp.asarray(variance)
    pixel = mean.ndim == 1
    windows = (len(layer.kernel_size) for _, layer in _layers(net) if isinstance(layer, nnx.Conv))
    shape = (1, *(1,) * (next(windows, 0) if pixel else 0), *mean.shape)
    layers: list[Any] = []

    def run(x: jax.Array) -> list[tuple[Any, Any]]:
        token = _FOUND.set([])
        try:
            with _called(net, functools.partial(_call, changed, pixel)):
                net(x)
            found = _FOUND.get() or []
        finally:
            _FOUND.reset(token)
        layers.extend(layer for layer, *_ in found)
        return [tuple(parts) for _, *parts in found]

    moments = Moments(mean.reshape(shape), variance=variance.reshape(shape))
    value = as_value(moments, "input 0", propagation_of("diagonal", "exact"))
    jaxpr = jax.make_jaxpr(run)(jax.ShapeDtypeStruct(shape, mean.dtype))
    results = Interpreter(_RULES).run_closed(jaxpr, [value])
    return list(zip(layers, results[::2], results[1::2], strict=True))


def _layers(net: nnx.Module) -> list[tuple[tuple, Any]]:
    """Return convolutions and linear maps of a network, with their paths."""
    return [p for p in nnx.iter_modules(net) if isinstance(p[1], nnx.Conv | nnx.Linear)]


def _name(path: tuple) -> str:
    return ".".join(map(str, path)) or "net"


def _call(changed: Callable, pixel: bool, plain: Callable, layer: Any, x: jax.Array) -> jax.Array:
    if x.size == 0:
        raise ValueError(
            "a single pixel does not go through a pool or the like: give mean and variance in the "
            "shape of one datum, with all its positions"
        )
    return changed(layer, _apply_to_pixel(plain, layer, x) if pixel else plain(layer, x))


def _apply_to_pixel(plain: Callable, layer: Any, x: jax.Array) -> jax.Array:
    """Apply a layer to pixels with the moments of x, as many as one output sees."""
    if isinstance(layer, nnx.Linear):
        count = statistics.copies_for("nnx.Linear", layer.in_features, x.shape[-1])
        return plain(layer, _copies_p.bind(x, shape=(1, layer.in_features)) if count > 1 else x)
    rank = len(layer.kernel_size)
    steps = layer.kernel_dilation
    steps = (steps,) * rank if isinstance(steps, int) else tuple(steps)
    window = [(size - 1) * step + 1 for size, step in zip(layer.kernel_size, steps, strict=True)]
    wide = _copies_p.bind(x, shape=(1, *window, x.shape[-1]))
    kernel, axes = layer.kernel[...], "XYZ"[:rank]
    output = lax.conv_general_dilated(
        wide,
        kernel if layer.mask is None else kernel * layer.mask,
        (1,) * rank,
        "VALID",
        rhs_dilation=steps,
        dimension_numbers=(f"N{axes}C", f"{axes}IO", f"N{axes}C"),
        feature_group_count=layer.feature_group_count,
    )
    return output if layer.bias is None else output + layer.bias[...]


@contextlib.contextmanager
def _called(net: nnx.Module, call: Callable) -> Iterator[None]:
    """Let the layers of a network be called by ``call``, which gets their own way first."""
    layers = [layer for _, layer in _layers(net)]
    for layer in layers:
        kind: Any = type(layer)
        object.__setattr__(layer, "__class__", _watched(kind))
    watch = _WATCH.set(call)
    try:
        yield
    finally:
        _WATCH.reset(watch)
        for layer in layers:
            object.__setattr__(layer, "__class__", type(layer).__mro__[1])


_WATCH: ContextVar[Callable] = ContextVar("what calls layers")


@functools.cache
def _watched(kind: Any) -> type:
    """Return a class of layers that are called by ``call``; instances of both look the same."""

    def call(self: Any, x: jax.Array) -> jax.Array:
        return _WATCH.get()(kind.__call__, self, x)

    return type(kind.__name__, (kind,), {"__call__": call})


def _statistics(x: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    return _mean_p.bind(x, axis=axis), _variance_p.bind(x, axis=axis)
