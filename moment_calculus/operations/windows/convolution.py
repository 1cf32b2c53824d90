"""Convolutions of live values with certain or Gaussian weights.

Source: Shekhovtsov et al. 2018, eq. 7 (certain weights); Haußmann et al. 2019 (Gaussian
weights).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from moment_calculus.numerics.arrays import (
    Array,
    axis_moved,
    device,
    diagonal_matrix,
    identity_like,
    namespace,
)
from moment_calculus.numerics.derivatives import transposed_each, transposed_with
from moment_calculus.operations.linear.checks import (
    check_independent_components,
    check_no_shared_sites,
)
from moment_calculus.operations.linear.maps import mean_of
from moment_calculus.operations.shapes.moves import refuse_dense
from moment_calculus.values import Gaussian, Spread, Step
from moment_calculus.values.covariances import lag_covariance, shifted
from moment_calculus.values.spread import features_last
from moment_calculus.values.step import Added

# A bilinear function of plain inputs and a plain weight, of any number of output
# channels, without padding; no output contains a component of either twice.
Kernel = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class SpatialAxis:
    """One axis along which the window of a convolution moves."""

    inputs: int  # its place in the inputs
    weight: int  # its place in the weight
    outputs: int  # its place in the outputs
    stride: int = 1
    dilation: int = 1


@dataclass(frozen=True)
class ConvolutionLayout:
    """The places of the axes of a convolution without padding."""

    spatial: tuple[SpatialAxis, ...]
    batch: tuple[int, int] | None  # in inputs and outputs; None if their batches differ
    features: int  # negative place of the channels in the outputs
    weight_features: int  # place of the output channels in the weight
    groups: int = 1  # of output channels, which see different inputs


def convolution(inputs: Any, weight: Any, kernel: Kernel, layout: ConvolutionLayout) -> Gaussian:
    """Convolve padded inputs with a weight, at least one of them random.

    E[y] = μ * M and Var[y] = (μ² + v) * S + v * M² for weights N(M, S), where * is the
    kernel: exact for independent components of the inputs. Dependent inputs (hidden
    layers) enter as independent. Source: Shekhovtsov et al. 2018, eq. 7; Haußmann et al.
    2019, section 3.
    """
    # Measured on the logits of two 3×3 convolutions with relu, an average and a max pool,
    # random weights and a certain image: standard deviations are 0.96 to 0.98 times the
    # exact ones, means are off by 0.04 of them.
    x, w = (o.gaussian() if hasattr(o, "gaussian") else o for o in (inputs, weight))
    random = [operand for operand in (x, w) if isinstance(operand, Gaussian)]
    check_no_shared_sites("the inputs and the weight of a convolution", random)
    check_independent_components(
        f"the weight of a convolution, of shape {tuple(w.shape)},", w, "convolution"
    )
    mean = kernel(mean_of(x), mean_of(w))
    step = _Convolved(tuple(random), x, w, kernel, layout, tuple(mean.shape))
    return Gaussian(
        mean,
        Spread(step.variance(), step.joint, step.carries_covariance()),
        step,
        axis=layout.features,
        propagation=random[0].propagation,
    )


@dataclass(frozen=True, eq=False)
class _Convolved(Step):
    """Step of a convolution; its covariances are computed on demand."""

    inputs: tuple[Gaussian, ...] = field()  # the random operands
    x: Any
    w: Any
    kernel: Kernel
    layout: ConvolutionLayout
    shape: tuple[int, ...]  # of the outputs

    @property
    def assumes_independence(self) -> bool:  # type: ignore[override]
        return isinstance(self.x, Gaussian) and not self.x.propagation.has_full_covariance

    def _is_x(self, place: int) -> bool:
        """Whether an input is x; the weight may be the same value."""
        return self.inputs[place] is self.x and (place == 0 or self.x is not self.w)

    def pull(self, value: Gaussian, place: int, cotangent: Array) -> Array:
        """Return the transpose of the convolution by x, or by the weight."""
        source = self.inputs[place]
        like = namespace(cotangent).zeros_like(source.mean)
        return transposed_each(partial(self._convolved, place), like, cotangent)

    def _convolved(self, place: int, array: Array) -> Array:
        """Convolve with an array in place of the mean of an input."""
        if self._is_x(place):
            return self.kernel(array, mean_of(self.w))
        return self.kernel(mean_of(self.x), array)

    def pull_rows(self, value: Gaussian, place: int, cotangent: Array, axis: int) -> Array | None:
        """Return the transpose by the weight for each datum."""
        batch, rank = self.layout.batch, len(value.shape)
        if self._is_x(place) or batch is None or axis + rank != batch[1]:
            return None
        xp, inputs = namespace(cotangent), mean_of(self.x)
        like = xp.zeros_like(self.w.mean)
        data = xp.expand_dims(axis_moved(inputs, batch[0], 0), axis=batch[0] + 1)
        rows = xp.expand_dims(axis_moved(cotangent, batch[1] + 1, 0), axis=batch[1] + 2)
        pulled = transposed_with(self.kernel, like, data, rows)
        return axis_moved(pulled, 0, 1)

    def same_rows(self, value: Gaussian, place: int, axis: int) -> int | None:
        batch = self.layout.batch
        if batch is None or not self._is_x(place):
            return None
        return batch[0] - len(self.x.shape) if axis + len(value.shape) == batch[1] else None

    def own(self, value: Gaussian) -> Added | None:
        """Return the noise of random weights times that of random inputs."""
        if not (isinstance(self.x, Gaussian) and isinstance(self.w, Gaussian)):
            return None
        return Added(self.kernel(self.x.variance, self.w.variance))

    def own_lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Return the noise of the weights times that of the inputs at two positions."""
        steps = None if self.own(value) is None else self._steps(offset)
        lagged = None if steps is None else lag_covariance(self.x, steps)
        return None if lagged is None else self.kernel(lagged, self.w.variance)

    def variance(self) -> Array:
        parts = []
        if isinstance(self.w, Gaussian):
            mean = mean_of(self.x)
            spread = self.x.variance if isinstance(self.x, Gaussian) else 0.0
            parts.append(self.kernel(mean * mean + spread, self.w.variance))
        if isinstance(self.x, Gaussian):
            mean = mean_of(self.w)
            parts.append(self.kernel(self.x.variance, mean * mean))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def carries_covariance(self) -> bool:
        """Whether full mode propagates an exact covariance between channels."""
        if not isinstance(self.x, Gaussian) or not self.x.propagation.has_full_covariance:
            return False
        if not self.x.independent:
            refuse_dense(self.x, "a convolution")
        return True

    def joint(self) -> Array:
        """Return the covariance between the channels at each position, for independent inputs."""
        variance = features_last(self.variance(), self.layout.features)
        if not isinstance(self.x, Gaussian):
            return diagonal_matrix(variance)  # channels have weights of their own
        blocks = self._between_channels(mean_of(self.w))
        groups, size = blocks.shape[-3], blocks.shape[-1]
        xp = namespace(blocks)
        identity = identity_like(blocks[..., 0, 0])[:, None, :, None]
        wide = identity * blocks[..., :, :, None, :]
        matrix = xp.reshape(wide, (*blocks.shape[:-3], groups * size, groups * size))
        # The diagonal of the matrix lacks the variance by the weights.
        return xp.where(identity_like(variance) > 0, variance[..., None], matrix)

    def _between_channels(self, mean: Array) -> Array:
        """Return Σ M_o M_o′ v for channels of each group, [..., groups, size, size]."""
        xp, place, groups = namespace(mean), self.layout.weight_features, self.layout.groups
        first = axis_moved(mean, place, 0)
        rest, size = first.shape[1:], first.shape[0] // groups
        split = xp.reshape(first, (groups, size, *rest))
        pairs = xp.reshape(split[:, :, None] * split[:, None], (-1, *rest))
        result = self.kernel(self.x.variance, axis_moved(pairs, 0, place))
        last = features_last(result, self.layout.features)
        return xp.reshape(last, (*last.shape[:-1], groups, size, size))

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        steps = self._steps(offset)
        if steps is None:
            return None
        total: Any = 0.0
        if isinstance(self.w, Gaussian):
            shared = self._shared_weights(steps)
            if shared is None:
                return None
            total = total + shared
        return total + self._shared_inputs(offset, steps) if isinstance(self.x, Gaussian) else total

    def _steps(self, offset: tuple[int, ...]) -> list[int] | None:
        """Return the offset of the inputs of two outputs; None for outputs of two channels."""
        places = [(axis.inputs, axis.outputs, axis.stride) for axis in self.layout.spatial]
        places += [(*self.layout.batch, 1)] if self.layout.batch else []
        if any(offset[i] for i in set(range(len(offset))) - {place[1] for place in places}):
            return None
        steps = [0] * len(self.x.shape)
        for inputs, outputs, stride in places:
            steps[inputs] = offset[outputs] * stride
        return steps

    def _shared_weights(self, steps: Sequence[int]) -> Array | None:
        """Return Σ S E[x_p x_p′], as two outputs of one channel have the same weights."""
        left, right = shifted(mean_of(self.x), steps)
        product = left * right
        if isinstance(self.x, Gaussian):
            lagged = lag_covariance(self.x, steps)
            if lagged is None:
                return None
            product = product + lagged
        return self.kernel(product, self.w.variance)

    def _shared_inputs(self, offset: tuple[int, ...], steps: Sequence[int]) -> Array:
        """Return Σ M_k M_k′ v where two windows overlap, for independent inputs."""
        mean, spread = mean_of(self.w), self.x.variance
        first, second, inputs = ([slice(None)] * a.ndim for a in (mean, mean, spread))
        crop = [slice(n - abs(o)) for n, o in zip(self.shape, offset, strict=True)]
        is_disjoint = bool(self.layout.batch and offset[self.layout.batch[1]])
        for axis in self.layout.spatial:
            distance, size = steps[axis.inputs], mean.shape[axis.weight]
            taps, rest = divmod(abs(distance), axis.dilation)
            is_disjoint = is_disjoint or bool(rest) or taps >= size
            halves = [slice(taps, None), slice(max(size - taps, 0))]
            first[axis.weight], second[axis.weight] = halves if distance > 0 else halves[::-1]
            inputs[axis.inputs] = slice(abs(distance), None)
        if is_disjoint:
            shape = [part.stop for part in crop]
            return namespace(spread).zeros(shape, dtype=spread.dtype, device=device(spread))
        product = mean[tuple(first)] * mean[tuple(second)]
        return self.kernel(spread[tuple(inputs)], product)[tuple(crop)]
