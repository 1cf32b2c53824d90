"""Convolutions of live values with certain or Gaussian weights.

Source: Shekhovtsov et al. 2018, eq. 7 (certain weights); Haußmann et al. 2019 (Gaussian weights).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from moment_calculus.numerics.arrays import Array, device, diagonal_matrix, identity_like
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.linear.weights import refuse_shared, refuse_tied
from moment_calculus.refusals.errors import CovarianceDroppedWarning
from moment_calculus.refusals.notices import warn_user
from moment_calculus.values import Gaussian, Spread, Step
from moment_calculus.values.lags import lag_covariance, shifted
from moment_calculus.values.layout import features_last

Kernel = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class SpatialAxis:
    """One axis along which the window of a convolution moves.

    Args:
        inputs: its place in the inputs.
        weight: its place in the weight.
        outputs: its place in the outputs.
        stride: steps of the window.
        dilation: distance of neighbouring entries of the window.
    """

    inputs: int
    weight: int
    outputs: int
    stride: int = 1
    dilation: int = 1


@dataclass(frozen=True)
class ConvolutionLayout:
    """Where the axes of a convolution without padding are.

    Args:
        spatial: axes along which the window moves.
        batch: place of the batch in the inputs and in the outputs; None if they differ in it.
        features: negative place of the channels in the outputs.
        weight_features: place of the output channels in the weight.
        groups: number of groups of output channels that see different inputs.
    """

    spatial: tuple[SpatialAxis, ...]
    batch: tuple[int, int] | None
    features: int
    weight_features: int
    groups: int = 1


def convolution(inputs: Any, weight: Any, kernel: Kernel, layout: ConvolutionLayout) -> Gaussian:
    """Convolve inputs with a weight, at least one of them random; pad the inputs before.

    E[y] = μ * M and Var[y] = (μ² + v) * S + v * M² for weights N(M, S), where * is the kernel:
    exact for independent components of the inputs. Components of the inputs that depend on each
    other (hidden layers, whose positions share weights) enter as independent in full mode too.
    Measured on the logits of two 3×3 convolutions with relu, an average and a max pool, random
    weights and a certain image: standard deviations 0.96 to 0.98 times the exact ones, means off
    by 0.04 of them.

    Outputs at two positions share the weights; their covariance is known to
    :func:`moment_calculus.values.lags.lag_covariance`, and so to pools and sums over positions.

    Args:
        inputs: value or array.
        weight: value or array; a random weight has independent components.
        kernel: bilinear function of plain inputs and a plain weight, of any number of output
            channels, without padding; no output contains a component of either twice.
        layout: where the axes are.

    Raises:
        UnsupportedMoments: if the components of the weight are dependent, or inputs and weight
            share a latent site.

    Warns:
        CovarianceDroppedWarning: in full mode, if the inputs are random: variances are exact under
            the assumption above, and covariances between channels are not carried on.

    Source: Shekhovtsov et al. 2018, eq. 7; Haußmann et al. 2019, section 3.
    """
    x, w = (o.gaussian() if hasattr(o, "gaussian") else o for o in (inputs, weight))
    random = [operand for operand in (x, w) if isinstance(operand, Gaussian)]
    refuse_shared("the inputs and the weight of a convolution", random)
    refuse_tied(f"the weight of a convolution, of shape {tuple(w.shape)},", w, "convolution")
    mean = kernel(_mean(x), _mean(w))
    step = Convolved(tuple(random), x, w, kernel, layout, tuple(mean.shape))
    covariance = step.joint if step.carries_covariance() else None
    return Gaussian(
        mean,
        Spread(step.variance(), covariance, step.joint),
        step,
        axis=layout.features,
        propagation=random[0].propagation,
    )


def _mean(operand: Any) -> Array:
    return operand.mean if isinstance(operand, Gaussian) else operand


@dataclass(frozen=True, eq=False)
class Convolved(Step):
    """One convolution; its covariances are computed when they are asked for.

    Args:
        inputs: the random ones of both operands.
        x: the inputs of the convolution.
        w: its weight.
        kernel: computes it.
        layout: where the axes are.
        shape: of the outputs.
    """

    inputs: tuple[Gaussian, ...] = field()
    x: Any
    w: Any
    kernel: Kernel
    layout: ConvolutionLayout
    shape: tuple[int, ...]

    @property
    def mixes(self) -> bool:  # type: ignore[override]
        """In diagonal mode."""
        return isinstance(self.x, Gaussian) and not self.x.propagation.full

    def variance(self) -> Array:
        """Variance of every output."""
        parts = []
        if isinstance(self.w, Gaussian):
            mean = _mean(self.x)
            spread = self.x.variance if isinstance(self.x, Gaussian) else 0.0
            parts.append(self.kernel(mean * mean + spread, self.w.variance))
        if isinstance(self.x, Gaussian):
            mean = _mean(self.w)
            parts.append(self.kernel(self.x.variance, mean * mean))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def carries_covariance(self) -> bool:
        """Whether full mode has an exact covariance between channels to carry on."""
        if not isinstance(self.x, Gaussian) or not self.x.propagation.full:
            return False
        if not self.x.independent:
            warn_user(
                "a convolution of hidden values that depend on latent site(s) "
                f"{', '.join(sorted(self.x.sites))}: covariances between positions and channels "
                "are not carried through it, only the variances are kept",
                CovarianceDroppedWarning,
            )
        return self.x.independent

    def joint(self) -> Array:
        """Covariance between the channels at each position, for independent inputs."""
        variance = features_last(self.variance(), self.layout.features)
        if not isinstance(self.x, Gaussian):
            return diagonal_matrix(variance)  # channels have weights of their own
        blocks = self._between_channels(_mean(self.w))
        groups, size = blocks.shape[-3], blocks.shape[-1]
        xp = namespace(blocks)
        apart = identity_like(blocks[..., 0, 0])[:, None, :, None]
        wide = apart * blocks[..., :, :, None, :]
        matrix = xp.reshape(wide, (*blocks.shape[:-3], groups * size, groups * size))
        # the part of the inputs is on this diagonal already, that of the weights is not
        return xp.where(identity_like(variance) > 0, variance[..., None], matrix)

    def _between_channels(self, mean: Array) -> Array:
        """Σ M_o M_o′ v for the pairs of channels in each group, [..., groups, size, size]."""
        xp, place, groups = namespace(mean), self.layout.weight_features, self.layout.groups
        first = xp.moveaxis(mean, place, 0)
        rest, size = first.shape[1:], first.shape[0] // groups
        split = xp.reshape(first, (groups, size, *rest))
        pairs = xp.reshape(split[:, :, None] * split[:, None], (-1, *rest))
        found = self.kernel(self.x.variance, xp.moveaxis(pairs, 0, place))
        last = features_last(found, self.layout.features)
        return xp.reshape(last, (*last.shape[:-1], groups, size, size))

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Covariance of outputs an offset apart, of the same channel."""
        places = [(axis.inputs, axis.outputs, axis.stride) for axis in self.layout.spatial]
        places += [(*self.layout.batch, 1)] if self.layout.batch else []
        if any(offset[i] for i in set(range(len(offset))) - {place[1] for place in places}):
            return None  # another channel
        steps = [0] * len(self.x.shape)
        for inputs, outputs, stride in places:
            steps[inputs] = offset[outputs] * stride
        total: Any = 0.0
        if isinstance(self.w, Gaussian):
            shared = self._shared_weights(steps)
            if shared is None:
                return None
            total = total + shared
        return total + self._shared_inputs(offset, steps) if isinstance(self.x, Gaussian) else total

    def _shared_weights(self, steps: Sequence[int]) -> Array | None:
        """Σ S E[x_p x_p′]: two outputs of one channel have the same weights."""
        left, right = shifted(_mean(self.x), steps)
        product = left * right
        if isinstance(self.x, Gaussian):
            known = lag_covariance(self.x, steps)
            if known is None:
                return None
            product = product + known
        return self.kernel(product, self.w.variance)

    def _shared_inputs(self, offset: tuple[int, ...], steps: Sequence[int]) -> Array:
        """Σ M_k M_k′ v where the windows of two outputs overlap, for independent inputs."""
        mean, spread = _mean(self.w), self.x.variance
        first, second, inputs = ([slice(None)] * a.ndim for a in (mean, mean, spread))
        crop = [slice(n - abs(o)) for n, o in zip(self.shape, offset, strict=True)]
        apart = bool(self.layout.batch and offset[self.layout.batch[1]])
        for axis in self.layout.spatial:
            distance, size = steps[axis.inputs], mean.shape[axis.weight]
            taps, rest = divmod(abs(distance), axis.dilation)
            apart = apart or bool(rest) or taps >= size
            halves = [slice(taps, None), slice(max(size - taps, 0))]
            first[axis.weight], second[axis.weight] = halves if distance > 0 else halves[::-1]
            inputs[axis.inputs] = slice(abs(distance), None)
        if apart:
            shape = [part.stop for part in crop]
            return namespace(spread).zeros(shape, dtype=spread.dtype, device=device(spread))
        product = mean[tuple(first)] * mean[tuple(second)]
        return self.kernel(spread[tuple(inputs)], product)[tuple(crop)]
