"""Latent weights whose inputs are dropped: q(W) = M diag(z), with a new z for each datum.

For units W x = M (x∘z), with one z for each row of x and each input (few certain x: exact
before any function). For weights (DropConnect) W x = M x + e, Var[e_i] = r Σ_j M_ij²
E[x_j²]. Source: Li and Gal 2017, section 2.3; Wan et al. 2013 (DropConnect).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from moment_calculus.errors import OR_DRAW_ALL, OR_DRAW_ONE_MASK, UnsupportedMoments
from moment_calculus.numerics.arrays import Array, affine, namespace, squared
from moment_calculus.operations.dropout.noise import bernoulli_mask as switch
from moment_calculus.operations.dropout.noise import multiply_by_noise, noise, where_mask
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import is_value, site_value
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian, PendingWeight
from moment_calculus.values.propagation import Propagation

FEW = 3  # up to so many certain inputs the masks are summed over: eight outcomes
_ONE_USE = (
    "drop only other sites, by naming those in MCDropoutGuide(p={...}), or use one site for each "
    "linear map" + OR_DRAW_ALL
)
_UNMASKED = (
    "leave the site unmasked: name the sites to mask in MCDropoutGuide(p={...})" + OR_DRAW_ONE_MASK
)


@dataclass(eq=False)
class SiteMask:
    """The noise of one masked site in one run of a program."""

    site: str
    noise_variance: (
        Any  # variance of the noise, whose mean is one; a number or an array without axes
    )
    axis: int | None = None  # the axis of inputs of the site, negative; None if not yet known
    per_weight: bool = False  # whether every weight has noise of its own (DropConnect)
    is_switch: bool = False  # whether the noise drops or keeps inputs, so that few are summed over
    uses: int = 0  # number of contractions so far
    rows: int = 0  # of inputs in these contractions

    def count_use(self, axis: int, rows: int) -> None:
        """Count a contraction over an axis of inputs; raise for a second one or another axis."""
        if self.uses:
            raise UnsupportedMoments(
                f"the masked site '{self.site}' is contracted a second time: both maps would have "
                "to see one mask",
                sites=[self.site],
                remedy=_ONE_USE,
            )
        if self.axis not in (None, axis):
            raise UnsupportedMoments(
                f"the masked site '{self.site}' is contracted along axis {axis}, but its mask is "
                f"over axis {self.axis}, along which the guide first met it contracted",
                sites=[self.site],
                remedy="contract it along one axis, or make a new guide for another model",
            )
        self.count_rows(rows)

    def count_rows(self, rows: int) -> None:
        """Count a contraction of a drawn site, whose maps share masks; raise if rows differ."""
        if self.uses and rows != self.rows:
            raise UnsupportedMoments(
                f"the masked site '{self.site}' is contracted with {rows} row(s) of inputs, and "
                f"with {self.rows} before: which of them share a mask is not known",
                sites=[self.site],
                remedy=f"use one site for each linear map, or {_UNMASKED}",
            )
        self.uses, self.rows = self.uses + 1, rows

    def unsupported_inputs_error(
        self, shape: tuple[int, ...], weight: tuple[int, ...]
    ) -> UnsupportedMoments:
        """Make the error for inputs of the site that are not rows of data."""
        site = self.site
        if len(weight) > 2 or shape[-1:] != weight[-1:]:
            return UnsupportedMoments(
                f"a linear map of inputs of shape {shape} with the masked site '{site}' of shape "
                f"{weight} is not supported: it is [out, in], and inputs [rows, in]",
                sites=[site],
                remedy="apply one matrix to inputs whose trailing axis is the contracted one, or "
                + _UNMASKED,
            )
        return UnsupportedMoments(
            f"inputs of shape {shape} of the masked site '{site}' have several axes of rows: it "
            "is not known which of them are data, with a mask of their own, and which share one",
            sites=[site],
            remedy="reshape the inputs to [rows, in] if every row has a mask of its own, or "
            + _UNMASKED,
        )

    def unsupported_operation_error(self) -> UnsupportedMoments:
        """Make the error for the site in an operation other than a map of inputs."""
        return UnsupportedMoments(
            f"the masked site '{self.site}' of MCDropoutGuide meets an operation other than a "
            "transpose or its contraction with an input: which of its elements share a mask is "
            "not known there",
            sites=[self.site],
            remedy=f"apply it by a linear map (F.linear, x @ w), or {_UNMASKED}",
        )


class MaskedWeight(PendingWeight):
    """A latent weight whose inputs are dropped, before the inputs are known."""

    __slots__ = ("mask", "order")
    name = "masked weight"

    def __init__(self, source: Gaussian, mask: SiteMask, order: Sequence[int]) -> None:
        super().__init__(source)
        # ``order`` is the site's own axis at each place, -1 for an axis that was added.
        self.mask, self.order = mask, tuple(order)

    @property
    def at_mean(self) -> Array:
        """The mean M of the weight."""
        return self.source.mean

    @property
    def is_used(self) -> bool:
        """Whether the mask has met inputs."""
        return self.mask.uses > 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weight."""
        return self.source.shape

    def gaussian(self) -> NoReturn:
        """Raise UnsupportedMoments: outside of a linear map the masks are not known."""
        raise self.mask.unsupported_operation_error()

    def permuted(self, order: Sequence[int]) -> MaskedWeight:
        """Return the weight with reordered axes: ``order`` is the old axis at each place."""
        return self._moved(
            lambda array: namespace(array).permute_dims(array, tuple(order)),
            [self.order[axis] for axis in order],
        )

    def converted(self, convert: Callable[[Array], Array]) -> MaskedWeight:
        """Return the weight in another precision or on another device."""
        return self._moved(convert, self.order)

    def as_row(self) -> MaskedWeight:
        """Return a vector [in] as a weight [1, in]."""
        return self._moved(lambda array: array[None, :], [-1, *self.order])

    def unused(self) -> MaskedWeight:
        """Return the unused weight, for another run of the same program."""
        return MaskedWeight(self.source, replace(self.mask, uses=0, rows=0), self.order)

    def _moved(self, move: Callable[[Array], Array], order: Sequence[int]) -> MaskedWeight:
        source = self.source
        return MaskedWeight(_marginal(self.mask, move(source.mean), source), self.mask, order)

    def map_inputs(self, inputs: Any, bias: Any) -> Any:
        """Map inputs with dropout noise by the certain mean of the weight."""
        x, noise = self.apply_noise(inputs)
        random = is_value(x) or is_value(bias)
        product = linear(x, self.at_mean, bias) if random else affine(x, self.at_mean, bias)
        if noise is None:
            return product
        return add(product, noise) if random or is_value(noise) else product + noise

    def apply_noise(self, x: Any) -> tuple[Any, Any]:
        """Return the noisy inputs, for the certain map M, and the noise to add to its outputs.

        The inputs are [rows, in] or [in], for a weight [out, in]; the noise is [rows,
        out] or None.
        """
        _check_shapes(x, self)
        self.mask.count_use(self.order[-1] - 1 - max(self.order), math.prod(x.shape[:-1]))
        mask, propagation = self.mask, self.source.propagation
        if mask.per_weight:
            return x, _of_each_weight(x, self.at_mean, mask, propagation)
        if mask.is_switch and not is_value(x) and x.shape[-1] <= FEW:
            return 0 * x, self._sum_over_masks(x, propagation)
        return multiply_by_noise(x, mask.noise_variance, mask.site, propagation), None

    def _sum_over_masks(self, x: Array, flow: Propagation) -> Any:
        """Map few certain inputs, one mask after the other: exact before any function."""
        outputs: Any = 0 * affine(x, self.at_mean)
        keep_probability = 1 / (1 + self.mask.noise_variance)
        for j in range(x.shape[-1]):
            column = x[..., j : j + 1]
            chance = namespace(x).ones_like(column) * keep_probability
            mask_value = switch(f"{self.mask.site}, input {j}", chance, flow)
            part = column * self.at_mean[:, j] / keep_probability
            other = add(outputs, part) if is_value(outputs) else outputs + part
            outputs = where_mask(broadcast(mask_value, outputs.shape, -1), other, outputs)
        return outputs


def masked_weight(mean: Array, mask: SiteMask, propagation: Propagation) -> MaskedWeight:
    """Make the value of a masked latent site with mean M."""
    like = site_value(mask.site, mean, mean, propagation, event_dim=len(mean.shape))
    return MaskedWeight(_marginal(mask, mean, like), mask, range(len(mean.shape)))


def _marginal(mask: SiteMask, mean: Array, like: Gaussian) -> Gaussian:
    variance = mask.noise_variance * squared(mean)
    return site_value(mask.site, mean, variance, like.propagation, event_dim=len(mean.shape))


def _of_each_weight(x: Any, matrix: Array, mask: SiteMask, flow: Propagation) -> Any:
    """Return the noise of the outputs under independent masks of all weights."""
    mean = x.mean if is_value(x) else x
    second = squared(mean) + x.variance if is_value(x) else squared(mean)
    variance = affine(second, mask.noise_variance * squared(matrix))
    return noise(mask.site, 0 * variance, variance, flow)


def _check_shapes(x: Any, weight: MaskedWeight) -> None:
    """Raise unless the weight is [out, in] and the inputs have rows along one axis only."""
    # A mask belongs to a datum; along several axes it is not known which rows are data.
    shape = tuple(x.shape)
    is_map = len(weight.shape) == 2 and shape and shape[-1] == weight.shape[-1]
    if not is_map or sum(size > 1 for size in shape[:-1]) > 1:
        raise weight.mask.unsupported_inputs_error(shape, weight.shape)
