"""Normalise and initialise networks by statistics of the data that are propagated analytically."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from moment_calculus.predictions import Moments, statistics
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.prediction.propagate import propagate

_RUNS: ContextVar[bool] = ContextVar("a pass of statistics", default=False)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


class AnalyticNorm(nn.Module):
    """Normalise channels by statistics of the data that are propagated analytically.

    y = γ (x − E[x]) / √(Var[x] + ε) + β, where mean and variance of each channel are those
    that :func:`propagate_statistics` computes from the statistics of the data, not those of a
    batch: rows do not depend on each other, training and evaluation are the same function, and
    gradients go through the statistics to the weights before the layer. Call that function
    before every step of a training, since they change with the weights, and once after it; the
    state dict has no statistics. The layer also takes uncertain inputs.

    Pixels are taken as independent. On digits the propagated standard deviations of the four
    layers of a LeNet were 0.66 to 1.06 times those of the data before training (the geometric
    mean over channels, three starts), and 0.86, 0.48, 0.24 and 0.21 times after a training
    without these layers: large filters sum pixels that resemble each other.

    Args:
        channels: number of channels.
        eps: added to the variances.
        affine: whether there are a scale γ [channels] and a bias β [channels] to learn.
        axis: of the channels in what is normalised.

    Raises:
        ValueError: from a call, if there are no statistics yet.

    Source: Shekhovtsov et al. 2018, section 4; Shekhovtsov and Flach 2018.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), AnalyticNorm(2))
        >>> propagate_statistics(net, mean=torch.zeros(3), variance=torch.ones(3))
        >>> net(torch.randn(5, 3)).shape
        torch.Size([5, 2])
    """

    mean: Tensor | None
    variance: Tensor | None

    def __init__(
        self, channels: int, eps: float = 1e-5, *, affine: bool = True, axis: int = 1
    ) -> None:
        super().__init__()
        self.channels, self.eps, self.axis = channels, eps, axis
        self.weight = (
            nn.Parameter(torch.ones(channels, device=torch.get_default_device()))
            if affine
            else None
        )
        self.bias = (
            nn.Parameter(torch.zeros(channels, device=torch.get_default_device()))
            if affine
            else None
        )
        self.register_buffer("mean", None, persistent=False)
        self.register_buffer("variance", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise.

        Args:
            x: [..., channels, ...], the channels at ``axis``.

        Returns:
            The same shape, with channels of mean 0 and variance 1 over the data before scale and
            bias.
        """
        value: Any = getattr(x, "value", None)
        if _RUNS.get() and value is not None:
            self.mean, self.variance = statistics.channel_statistics(value, self.axis)
        if self.mean is None or self.variance is None:
            raise statistics.without_statistics("propagate_statistics(net, mean=…, variance=…)")
        y = (x - self._wide(self.mean, x)) * self._wide((self.variance + self.eps).rsqrt(), x)
        if self.weight is None or self.bias is None:
            return y
        return y * self._wide(self.weight, x) + self._wide(self.bias, x)

    def _wide(self, channels: Tensor, x: Tensor) -> Tensor:
        """Return [channels] in a shape that broadcasts against x."""
        return statistics.along_axis(channels, self.axis, x.ndim)

    def extra_repr(self) -> str:
        """Return the arguments."""
        return f"{self.channels}, eps={self.eps}, affine={self.weight is not None}"


def propagate_statistics(net: nn.Module, mean: Tensor, variance: Tensor) -> None:
    """Give every :class:`AnalyticNorm` of a network the statistics of its inputs over the data.

    One pass of a single pixel, or of one datum, by diagonal covariance: convolutions, pools
    and linear maps behind a flattening see independent pixels with the same moments. Gradients
    of what the layers return go through this pass.

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
        >>> import torch
        >>> norm = AnalyticNorm(2)
        >>> propagate_statistics(norm, mean=torch.zeros(2), variance=torch.ones(2))
        >>> norm.variance
        tensor([1., 1.])
    """
    _pass(net, mean, variance, lambda layer, output: output)


@torch.no_grad()
def initialise_from_statistics(net: nn.Module, mean: Tensor, variance: Tensor) -> None:
    """Scale and shift each layer so that its outputs have mean 0 and variance 1 over the data.

    Convolutions and linear maps are changed in place, one after the other as the network runs,
    by one pass of a single pixel, or of one datum (:func:`propagate_statistics`): for each
    output channel the weights are divided by the standard deviation, and the bias becomes what
    takes the mean away. Earlier biases have no effect. A layer that is used more than once is
    changed by its first use. Other layers stay as they are.

    Pixels are taken as independent. On digits the channels of the four layers of a LeNet, so
    initialised, have standard deviations of 0.5 to 2.3 over the data, and means of at most 2.4
    (three starts); before, those of the last layer have 0.02 to 0.04.

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
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
        >>> initialise_from_statistics(net, mean=torch.zeros(3), variance=torch.ones(3))
        >>> torch.linalg.norm(net[0].weight, dim=1).tolist()
        [1.0, 1.0]
    """
    layers: dict[Any, str] = {part: name for name, part in net.named_modules() if _has_weight(part)}
    statistics.check_biases(
        {name: part.bias is not None for part, name in layers.items()}, "bias=True"
    )
    found: dict[Any, tuple[Tensor, Tensor]] = {}

    def normalised(layer: Any, output: Any) -> Any:
        axis = -1 if isinstance(layer, nn.Linear) else 1
        if layer not in found:
            found[layer] = statistics.channel_statistics(output.value, axis)
            statistics.check_variances(layers[layer], found[layer][1])
        mean, variance = (statistics.along_axis(part, axis, output.ndim) for part in found[layer])
        return (output - mean) * variance.rsqrt()

    _pass(net, mean, variance, normalised)
    for layer, (centre, spread) in found.items():
        scale = spread.rsqrt()
        layer.weight.mul_(statistics.along_axis(scale, 0, layer.weight.ndim))
        layer.bias.sub_(centre).mul_(scale)


def _pass(
    net: nn.Module,
    mean: Tensor,
    variance: Tensor,
    changed: Callable[[Any, Any], Any],
) -> None:
    """Run a network on the moments of a pixel or a datum; ``changed`` gets what layers return."""
    pixel = mean.ndim == 1
    windows = (part.kernel_size for part in net.modules() if isinstance(part, _CONVOLUTIONS))
    rank = len(next(windows, ()))
    shape = (1, *mean.shape, *(1,) * (rank if pixel else 0))

    def forward(part: nn.Module, plain: Callable, x: Any) -> Any:
        if not isinstance(x, MomentTensor):
            return plain(x)
        output = _apply_to_pixel(part, x) if pixel else plain(x)
        return changed(part, output) if _has_weight(part) else output

    token = _RUNS.set(True)
    try:
        with _forwards(net, forward):
            propagate(net, Moments(mean.reshape(shape), variance=variance.reshape(shape)))
    finally:
        _RUNS.reset(token)


@contextlib.contextmanager
def _forwards(net: nn.Module, forward: Callable) -> Iterator[None]:
    """Replace the forward of layers that see several positions, on these modules alone."""
    parts = [part for part in net.modules() if _has_weight(part) or isinstance(part, _POOLS)]
    before = [vars(part).get("forward") for part in parts]
    for part in parts:
        vars(part)["forward"] = partial(forward, part, part.forward)
    try:
        yield
    finally:
        for part, own in zip(parts, before, strict=True):
            vars(part).pop("forward")
            if own is not None:
                vars(part)["forward"] = own


def _apply_to_pixel(layer: Any, x: Any) -> Any:
    """Apply a layer to pixels with the moments of x, as many as one output sees."""
    if isinstance(layer, nn.Linear):
        count = statistics.copies_for(f"nn.{layer}", layer.in_features, x.shape[-1])
        wide = _copies(x, lambda a: a.repeat_interleave(count, -1)) if count > 1 else x
        return F.linear(wide, layer.weight, layer.bias)
    rank = x.ndim - 2
    sizes = (
        layer.kernel_size if isinstance(layer.kernel_size, tuple) else (layer.kernel_size,) * rank
    )
    if isinstance(layer, _POOLS):
        return type(layer)(sizes)(_copies(x, lambda a: a.expand(*a.shape[:2], *sizes)))
    window = [(size - 1) * step + 1 for size, step in zip(sizes, layer.dilation, strict=True)]
    wide = _copies(x, lambda a: a.expand(*a.shape[:2], *window))
    convolve = getattr(F, f"conv{rank}d")
    return convolve(wide, layer.weight, layer.bias, 1, 0, layer.dilation, layer.groups)


def _copies(x: Any, arranged: Callable[[Tensor], Tensor]) -> MomentTensor:
    return MomentTensor(statistics.independent_copies(x.value, arranged))


def _has_weight(layer: nn.Module) -> bool:
    return isinstance(layer, (*_CONVOLUTIONS, nn.Linear))
