"""Rules of normalisations of features, and of softmax, log-softmax and logsumexp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.shapes.moves import axes_of, on_meta
from pyro_moments.rules.table import moment_rule, named


def _affine(value: Any, weight: Any, bias: Any) -> Value:
    if weight is not None:
        either = ops.is_value(value) or ops.is_value(weight)
        value = ops.multiply(value, weight) if either else value * weight
    return value if bias is None else ops.add(value, bias)


def _normalise_trailing(input: Any, shape: Sequence[int], eps: float, *, centred: bool) -> Any:
    """Normalise over the trailing axes, whose sizes are ``shape``."""
    shape, input_shape = tuple(shape), tuple(input.shape)
    if not ops.is_value(input):  # weight or bias are random
        return (F.layer_norm if centred else F.rms_norm)(input, shape, eps=eps)
    if len(shape) == 1:
        return ops.normalise(input, eps=eps, centred=centred)
    merged = ops.reshape(input, (*input_shape[: len(input_shape) - len(shape)], math.prod(shape)))
    result = ops.normalise(merged, eps=eps, centred=centred)
    return ops.reshape(result, input_shape)


@moment_rule(*named("layer_norm"))
def layer_norm(
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = False,  # unused, but torch's signature has it
) -> Value:
    """Moment rule of ``F.layer_norm`` and ``nn.LayerNorm``."""
    F.layer_norm(on_meta(input), tuple(normalized_shape))  # raises torch's own shape errors
    return _affine(_normalise_trailing(input, normalized_shape, eps, centred=True), weight, bias)


@moment_rule(*named("rms_norm"))
def rms_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Value:
    """Moment rule of ``F.rms_norm`` and ``nn.RMSNorm``."""
    F.rms_norm(on_meta(input), tuple(normalized_shape))  # raises torch's own shape errors
    eps = torch.finfo(on_meta(input).dtype).eps if eps is None else eps
    return _affine(_normalise_trailing(input, normalized_shape, eps, centred=False), weight, None)


@moment_rule(*named("group_norm"))
def group_norm(
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,  # unused, but torch's signature has it
) -> Value:
    """Moment rule of ``F.group_norm`` and ``nn.GroupNorm``."""
    F.group_norm(on_meta(input), num_groups)  # raises torch's own shape errors
    shape = tuple(input.shape)
    return _affine(
        _normalise_groups(input, num_groups, eps),
        _per_channel(weight, shape),
        _per_channel(bias, shape),
    )


def _normalise_groups(input: Any, count: int, eps: float) -> Any:
    """Normalise each of so many groups of the channels of each datum."""
    # All elements of a datum become features first, as those that a group normalises have to be.
    # Measured behind a convolution with random weights of sd 0.1, standard deviations are 0.99 to
    # 1.01 times those of draws; with covariance="diagonal", which takes elements as independent,
    # 0.8 to 1.7 times. They are too large where the first derivative vanishes.
    if not ops.is_value(input):
        return F.group_norm(input, count, eps=eps)
    shape, size = tuple(input.shape), math.prod(input.shape[1:])
    groups = ops.reshape(ops.reshape(input, (shape[0], size)), (shape[0], count, size // count))
    return ops.reshape(ops.normalise(groups, eps=eps), shape)


@moment_rule(F.instance_norm)
def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Value:
    """Moment rule of ``F.instance_norm`` and ``nn.InstanceNorm1d`` to ``3d``."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
    if running_mean is not None:
        raise UnsupportedMoments(
            "an instance normalisation that tracks statistics of random values",
            sites=errors.sites_of(input, weight, bias),
            remedy="make the module with track_running_stats=False, or call .eval() on it"
            + errors.OR_DRAW,
        )
    F.instance_norm(on_meta(input))  # raises torch's own shape errors
    return group_norm(input, input.shape[1], weight, bias, eps)


def _per_channel(parameter: Any, shape: tuple[int, ...]) -> Any:
    """Return a parameter [channels] aligned with axis 1."""
    if parameter is None or len(shape) == 2:
        return parameter
    return ops.reshape(parameter, (shape[1],) + (1,) * (len(shape) - 2))


@moment_rule(F.batch_norm)
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,  # unused, but torch's signature has it
    eps: float = 1e-5,
) -> Value:
    """Moment rule of ``F.batch_norm`` and ``nn.BatchNorm1d`` to ``3d`` with running averages."""
    if training:
        raise UnsupportedMoments(
            "batch normalisation by statistics of the random batch",
            sites=errors.sites_of(input, weight, bias),
            remedy="call .eval() on the module, so that it uses its running averages, or use "
            "nn.LayerNorm" + errors.OR_DRAW,
        )
    shape = tuple(input.shape)
    scale = _per_channel((running_var + eps).rsqrt(), shape)
    shift = -_per_channel(running_mean, shape) * scale
    value = ops.scale_shift(input, scale, shift) if ops.is_value(input) else input * scale + shift
    return _affine(value, _per_channel(weight, shape), _per_channel(bias, shape))


@moment_rule(*named("logsumexp"), torch.special.logsumexp)
def logsumexp(input: Value, dim: Any, keepdim: bool = False) -> Any:
    """Moment rule of ``logsumexp`` over one axis."""
    result = _apply_along(ops.LogSumExp, input, dim)
    return result if keepdim else ops.reshape(result.gaussian(), on_meta(input).sum(dim).shape)


@moment_rule(*named("log_softmax"), torch.special.log_softmax)
def log_softmax(input: Value, dim: Any = None, *_: Any, dtype: Any = None, **__: Any) -> Any:
    """Moment rule of ``log_softmax`` and ``nn.LogSoftmax`` over one axis."""
    _check_dtype(input, dtype)
    return _apply_along(ops.LogSoftmax, input, dim)


@moment_rule(*named("softmax"), torch.special.softmax, takes=(ops.LogSoftmax,))
def softmax(input: Any, dim: Any = None, *_: Any, dtype: Any = None, **__: Any) -> Any:
    """Moment rule of ``softmax`` and ``nn.Softmax`` over one axis."""
    if isinstance(input, ops.LogSoftmax):
        # Distributions of classes normalise their logits first.
        is_trailing = dim is not None and axes_of(input, dim) == (len(input.shape) - 1,)
        input = input.source if is_trailing else input.gaussian()
    _check_dtype(input, dtype)
    return _apply_along(ops.Softmax, input, dim)


def _apply_along(kind: type[ops.FunctionOfLogits], input: Value, dim: Any) -> Any:
    axes = () if dim is None else axes_of(input, dim)
    if len(axes) != 1:
        raise UnsupportedMoments(
            f"{kind.name} over dim={dim} of a value of shape {input.shape}",
            sites=input.sites,
            remedy="name one axis, e.g. dim=-1" + errors.OR_DRAW,
        )
    last = len(input.shape) - 1
    if axes[0] == last:
        return kind(input.gaussian())
    moved = kind(ops.move_axis(input.gaussian(), axes[0], last))
    return ops.move_axis(moved.gaussian(), last, axes[0])


def _check_dtype(input: Value, dtype: Any) -> None:
    if dtype is not None and dtype != input.gaussian().mean.dtype:
        raise UnsupportedMoments(
            f"a softmax that converts its random input to {dtype}",
            sites=input.sites,
            remedy="convert the input first, e.g. with .to(dtype)",
        )
