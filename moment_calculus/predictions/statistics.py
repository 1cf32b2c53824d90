"""Statistics of a data set's units by channel, from the moments of one pixel or one datum.

Source: Shekhovtsov et al. 2018, section 4; Shekhovtsov and Flach 2018, Normalization of neural
networks using analytic variance propagation.
"""

from __future__ import annotations

from collections.abc import Callable

from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values import Gaussian, Value


def channel_statistics(value: Value, axis: int) -> tuple[Array, Array]:
    """Return mean and variance [channels] over the data and all other axes.

    The variance is the mean of the variances plus the variance of the means (total variance).
    """
    gaussian = value.gaussian()
    mean, variance = gaussian.mean, gaussian.variance
    xp, rank = namespace(mean), len(mean.shape)
    others = tuple(dimension for dimension in range(rank) if dimension != axis % rank)
    centre = xp.mean(mean, axis=others, keepdims=True)
    spread = xp.mean(xp.broadcast_to(variance, mean.shape) + (mean - centre) ** 2, axis=others)
    return xp.reshape(centre, (-1,)), spread


def along_axis(channels: Array, axis: int, rank: int) -> Array:
    """Return [channels] with axes of length one around them."""
    shape = [1] * rank
    shape[axis] = -1
    return namespace(channels).reshape(channels, tuple(shape))


def independent_copies(value: Value, arranged: Callable[[Array], Array]) -> Gaussian:
    """Return pixels that are independent of each other and have the moments of one pixel.

    ``arranged`` puts copies of an array of the value's shape in their places.
    """
    gaussian = value.gaussian()
    moments = Moments(arranged(gaussian.mean), variance=arranged(gaussian.variance))
    return as_value(moments, PIXEL, gaussian.propagation)


def check_variances(name: str, variance: Array) -> None:
    """Raise if a channel of a layer is the same for all data."""
    xp = namespace(variance)
    bad = [
        index for index, value in enumerate(variance) if not bool(xp.isfinite(value) & (value > 0))
    ]
    if bad:
        raise ValueError(
            f"the variance of channel {', '.join(map(str, bad[:5]))} of layer {name!r} is zero or "
            "not finite, so that nothing scales it to one: give the inputs a positive variance, "
            "and look for weights that are zero"
        )


def check_biases(biases: dict[str, bool], remedy: str) -> None:
    """Raise if a layer has no bias to shift its outputs by."""
    lacking = [name for name, has in biases.items() if not has]
    if lacking:
        raise ValueError(
            f"layer {lacking[0]!r} has no bias, by which its outputs would get mean 0: make it "
            f"with {remedy}"
        )


def without_statistics(call: str) -> ValueError:
    """Return the error for a normalisation that has no statistics yet."""
    return ValueError(f"AnalyticNorm has no statistics of the data: call {call} before the network")


def copies_for(name: str, inputs: int, features: int) -> int:
    """Return how many pixels a linear map takes of each channel."""
    count, rest = divmod(inputs, max(features, 1))
    if rest or not features:
        raise ValueError(
            f"a single pixel, which has {features} channels here, does not go through {name}: give "
            "mean and variance in the shape of one datum, with all its positions"
        )
    return count


PIXEL = "pixel"  # the name of the input in messages
