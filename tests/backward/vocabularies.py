"""Functions of which programs are made: on values of the library, on arrays, or linearised.

A program takes a vocabulary and its sites. On arrays it is the plain function, which oracles
differentiate. On :class:`Linearised` ones it is the reference of a sweep: means of all steps at
held variances as a function of noise that is added to every site and behind every nonlinear step,
differentiated by torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import namespace
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import matmul
from moment_calculus.operations.linear.reductions import cumulative_sum, reduce_sum
from moment_calculus.operations.normalised.normalisation import normalise
from moment_calculus.operations.normalised.softmax import softmax_value
from moment_calculus.operations.shapes import permute, reshape
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.windows.largest import window_maximum
from moment_calculus.values import Gaussian
from tests.cases import windows


class Library:
    """The library's rules, on values."""

    linear, product, matmul = staticmethod(linear), staticmethod(multiply), staticmethod(matmul)
    plus, minus, affine = staticmethod(add), staticmethod(subtract), staticmethod(scale_shift)
    take, sums, cumulative = (staticmethod(f) for f in (index, reduce_sum, cumulative_sum))
    reshape, permute, joined = (staticmethod(f) for f in (reshape, permute, concatenate))
    softmax = staticmethod(softmax_value)

    def function(self, name: str, x: Any) -> Any:
        return apply(activation(name), x)

    def normalised(self, x: Any) -> Any:
        return normalise(x, eps=1e-5)

    def convolved(self, x: Any, weight: Any) -> Any:
        return windows.convolve(x, weight)

    def pooled(self, x: Any) -> Any:
        return windows.pooled(x, 2, 2)

    def largest(self, x: Any) -> Any:
        return window_maximum(x, windows.over_last(2, 2))


class Plain:
    """The same functions of arrays of torch or JAX."""

    def linear(self, x: Any, weight: Any, bias: Any = 0.0) -> Any:
        return x @ weight.mT + bias

    def matmul(self, left: Any, right: Any) -> Any:
        return left @ right

    def product(self, left: Any, right: Any) -> Any:
        return left * right

    def plus(self, left: Any, right: Any) -> Any:
        return left + right

    def minus(self, left: Any, right: Any) -> Any:
        return left - right

    def affine(self, x: Any, scale: Any = 1.0, shift: Any = 0.0) -> Any:
        return scale * x + shift

    def take(self, x: Any, key: Any) -> Any:
        return x[key]

    def sums(self, x: Any, axes: Sequence[int]) -> Any:
        return namespace(x).sum(x, axis=tuple(axes))

    def cumulative(self, x: Any, axis: int) -> Any:
        return namespace(x).cumulative_sum(x, axis=axis)

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        return namespace(x).reshape(x, tuple(shape))

    def permute(self, x: Any, order: Sequence[int]) -> Any:
        return namespace(x).permute_dims(x, tuple(order))

    def joined(self, parts: Sequence[Any], axis: int) -> Any:
        return namespace(parts[0]).concat(list(parts), axis=axis)

    def softmax(self, x: Any) -> Any:
        powers = namespace(x).exp(x)
        return powers / powers.sum(-1)[..., None]

    def normalised(self, x: Any) -> Any:
        centred = x - x.mean(-1)[..., None]
        return centred * ((centred * centred).mean(-1)[..., None] + 1e-5) ** -0.5

    def function(self, name: str, x: Any) -> Any:
        return activation(name)(x)

    def convolved(self, x: Any, weight: Any) -> Any:
        return windows.convolved(x, weight)

    def pooled(self, x: Any) -> Any:
        return windows.summed(x, windows.over_last(2, 2))

    def largest(self, x: Any) -> Any:
        return namespace(x).maximum(x[..., :-1:2], x[..., 1::2])


@dataclass(frozen=True)
class Linearised:
    """A value of the library, and its mean as a function of all noise."""

    value: Any
    mean: Any

    @property
    def moments(self) -> Gaussian:
        """The value with its moments, not as a function that is still to be applied."""
        return self.value.gaussian()

    @property
    def held(self) -> torch.Tensor:
        return self.moments.mean.detach()


class Reference(Plain):
    """Means at held variances; ``noises`` are the added zeros with their covariances."""

    def __init__(self) -> None:
        self.noises: list[tuple[torch.Tensor, torch.Tensor]] = []

    def site(self, value: Gaussian) -> Linearised:
        """A latent site, whose components may be correlated along the trailing axis."""
        covariance = torch.diag_embed(value.variance)
        if not value.spread.plain:
            covariance = value.joint_covariance()
        return Linearised(value, value.mean + self._noise(value.shape, covariance))

    def _noise(self, shape: Sequence[int], covariance: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(*shape, dtype=torch.float64, requires_grad=True)
        self.noises.append((zeros, covariance))
        return zeros

    def _own(self, variance: torch.Tensor) -> torch.Tensor:
        return self._noise(variance.shape, torch.diag_embed(variance.detach()))

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Linearised:
        value = linear(*(getattr(part, "value", part) for part in (x, weight, bias)))
        mean = super().linear(*map(_mean, (x, weight)), 0.0 if bias is None else _mean(bias))
        if isinstance(x, Linearised) and isinstance(weight, Linearised):
            mean = mean + self._own(x.moments.variance @ weight.moments.variance.T)
        return Linearised(value, mean)

    def convolved(self, x: Any, weight: Any) -> Linearised:
        value = windows.convolve(getattr(x, "value", x), weight.value)
        mean = super().convolved(_mean(x), weight.mean)
        if isinstance(x, Linearised):
            mean = mean + self._own(super().convolved(x.moments.variance, weight.value.variance))
        return Linearised(value, mean)

    def pooled(self, x: Any) -> Linearised:
        return Linearised(windows.pooled(x.value, 2, 2), super().pooled(x.mean))

    def product(self, left: Any, right: Any) -> Linearised:
        """Of independent factors."""
        one, two = left.moments, right.moments
        own = self._own(one.variance * two.variance)
        return Linearised(multiply(one, two), left.mean * right.mean + own)

    def plus(self, left: Any, right: Any) -> Linearised:
        return Linearised(add(left.value, right.value), left.mean + right.mean)

    def minus(self, left: Any, right: Any) -> Linearised:
        return Linearised(subtract(left.value, right.value), left.mean - right.mean)

    def function(self, name: str, x: Any) -> Linearised:
        """f(x) by the gain E f′ about the held mean, with what its variance is beyond that."""
        base, rule = x.moments, activation(name)
        mean, variance = rule.moments(base.mean, base.variance)
        gain = rule.gain(base.mean, base.variance)
        own = self._own((variance - gain * gain * base.variance).clamp(min=0.0))
        return Linearised(apply(rule, x.value), mean + gain * (x.mean - x.held) + own)

    def affine(self, x: Any, scale: Any = 1.0, shift: Any = 0.0) -> Linearised:
        return Linearised(scale_shift(x.value, scale, shift), scale * x.mean + shift)

    def take(self, x: Any, key: Any) -> Linearised:
        return Linearised(index(x.value, key), x.mean[key])

    def sums(self, x: Any, axes: Sequence[int]) -> Linearised:
        return Linearised(reduce_sum(x.value, axes), x.mean.sum(tuple(axes)))

    def reshape(self, x: Any, shape: Sequence[int]) -> Linearised:
        return Linearised(reshape(x.value, shape), x.mean.reshape(*shape))

    def joined(self, parts: Sequence[Any], axis: int) -> Linearised:
        value = concatenate([part.value for part in parts], axis)
        return Linearised(value, torch.cat([part.mean for part in parts], axis))

    def covariance(self, result: Linearised) -> torch.Tensor:
        """Of all elements of a result, [n, n]."""
        rows = result.mean.reshape(-1)
        total = torch.zeros(len(rows), len(rows), dtype=torch.float64)
        for noise, covariance in self.noises:
            slopes = [_slope(row, noise).reshape(-1, covariance.shape[-1]) for row in rows]
            jacobian = torch.stack(slopes)
            blocks = covariance.reshape(-1, *covariance.shape[-2:])
            total = total + torch.einsum("kbi,bij,lbj->kl", jacobian, blocks, jacobian)
        return total


def _mean(part: Any) -> Any:
    return part.mean if isinstance(part, Linearised) else part


def _slope(row: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    slope = torch.autograd.grad(row, noise, retain_graph=True, allow_unused=True)[0]
    return torch.zeros_like(noise) if slope is None else slope
