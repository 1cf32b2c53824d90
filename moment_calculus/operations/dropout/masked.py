"""Latent weights of which the inputs are dropped: q(W) = M diag(z), a new z for each datum.

Which inputs a weight has is known where it is contracted with them. Until then it is no value that
one could compute with: it may be transposed and converted, and everything else refuses it.

    W x = M (x∘z),    one z for each row of x and each input               (units)
    few certain x: M (x∘z) by one mask after the other, exact before any function (units)
    W x = M x + e,    Var[e_i] = r Σ_j M_ij² E[x_j²]                       (weights: DropConnect)

Source: Li and Gal 2017, section 2.3; Wan et al. 2013 (DropConnect).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.matrices import affine, squared
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.dropout.noise import dropped, noise
from moment_calculus.operations.dropout.switches import mask as switch
from moment_calculus.operations.dropout.switches import select
from moment_calculus.operations.elementwise.arithmetic import add, is_value, leaf
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.refusals.errors import OR_DRAW_ALL, OR_DRAW_ONE_MASK, UnsupportedMoments
from moment_calculus.values import Gaussian

FEW = 3  # certain inputs, over whose masks functions of their maps are summed: eight outcomes
_ONE_USE = (
    "drop only other sites, by naming those in MCDropoutGuide(p={...}), or use one site for each "
    "linear map" + OR_DRAW_ALL
)
_UNMASKED = (
    "leave the site unmasked: name the sites to mask in MCDropoutGuide(p={...})" + OR_DRAW_ONE_MASK
)


@dataclass(eq=False)
class Mask:
    """The noise of one masked site in one run of a program.

    Args:
        site: the latent site.
        ratio: variance of the noise, whose mean is one; a number or an array without axes.
        axis: the site's axis of inputs, negative; None if it is not known beforehand.
        per_weight: whether every weight has noise of its own (DropConnect), not every input.
        is_switch: whether the noise drops an input or keeps it, so that few can be summed over.
        uses: how often the site was contracted so far.
        rows: how many rows of inputs it was contracted with.
    """

    site: str
    ratio: Any
    axis: int | None = None
    per_weight: bool = False
    is_switch: bool = False
    uses: int = 0
    rows: int = 0

    def spend(self, axis: int, rows: int) -> None:
        """Note that the site is contracted.

        Args:
            axis: the axis of its inputs there, negative.
            rows: of these inputs.

        Raises:
            UnsupportedMoments: if it was contracted before, or its inputs are on another axis.
        """
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
        self.spend_rows(rows)

    def spend_rows(self, rows: int) -> None:
        """Note that the site is contracted where it is drawn: all of its maps have one mask a row.

        Args:
            rows: of its inputs.

        Raises:
            UnsupportedMoments: if it was contracted with another number of rows before.
        """
        if self.uses and rows != self.rows:
            raise UnsupportedMoments(
                f"the masked site '{self.site}' is contracted with {rows} row(s) of inputs, and "
                f"with {self.rows} before: which of them share a mask is not known",
                sites=[self.site],
                remedy=f"use one site for each linear map, or {_UNMASKED}",
            )
        self.uses, self.rows = self.uses + 1, rows


class MaskedWeight(Composite):
    """A latent weight of which the inputs are dropped, before it meets them.

    Args:
        source: its marginal moments, the mean M and the variance r M².
        mask: its noise.
        order: the site's own axis at each place, -1 for one that was added.
    """

    __slots__ = ("mask", "order")
    name = "masked weight"

    def __init__(self, source: Gaussian, mask: Mask, order: Sequence[int]) -> None:
        super().__init__(source)
        self.mask, self.order = mask, tuple(order)

    @property
    def at_mean(self) -> Array:
        """M."""
        return self.source.mean

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weight."""
        return self.source.shape

    def gaussian(self) -> NoReturn:
        """Refuse: outside of a linear map its inputs, and with them its masks, are not known.

        Raises:
            UnsupportedMoments: always.
        """
        raise meets_other_operation(self.mask.site)

    def permuted(self, order: Sequence[int]) -> MaskedWeight:
        """The weight with its axes in another order.

        Args:
            order: the old axis at each new place.
        """
        return self._moved(
            lambda array: namespace(array).permute_dims(array, tuple(order)),
            [self.order[place] for place in order],
        )

    def converted(self, convert: Callable[[Array], Array]) -> MaskedWeight:
        """The weight in another precision, or on another device.

        Args:
            convert: converts an array.
        """
        return self._moved(convert, self.order)

    def as_row(self) -> MaskedWeight:
        """A vector [in] as a weight [1, in]."""
        return self._moved(lambda array: array[None, :], [-1, *self.order])

    def fresh(self) -> MaskedWeight:
        """The weight as it was before any use, for another run of the same program."""
        return MaskedWeight(self.source, replace(self.mask, uses=0, rows=0), self.order)

    def _moved(self, move: Callable[[Array], Array], order: Sequence[int]) -> MaskedWeight:
        source = self.source
        return MaskedWeight(_marginal(self.mask, move(source.mean), source), self.mask, order)

    def meets(self, x: Any) -> tuple[Any, Any]:
        """The inputs of its map with noise on them, and the noise that it adds to the outputs.

        Args:
            x: inputs [rows, in] or [in], value or array, of a weight [out, in].

        Returns:
            Inputs to be mapped by the certain M; noise [rows, out] to be added, or None.

        Raises:
            UnsupportedMoments: see :meth:`Mask.spend`; or if the shapes do not fit, or it is not
                clear which rows are data.
        """
        _check_shapes(x, self)
        self.mask.spend(self.order[-1] - 1 - max(self.order), math.prod(x.shape[:-1]))
        mask, flow = self.mask, self.source.propagation
        if mask.per_weight:
            return x, _of_each_weight(x, self.at_mean, mask, flow)
        if mask.is_switch and not is_value(x) and x.shape[-1] <= FEW:
            return 0 * x, self._sum_over_masks(x, flow)
        return dropped(x, mask.ratio, mask.site, flow), None

    def _sum_over_masks(self, x: Array, flow: Propagation) -> Any:
        """The map of few certain inputs, one mask after the other: exact before any function."""
        found: Any = 0 * affine(x, self.at_mean)
        kept = 1 / (1 + self.mask.ratio)
        for j in range(x.shape[-1]):
            column = x[..., j : j + 1]
            chance = namespace(x).ones_like(column) * kept
            drawn = switch(f"{self.mask.site}, input {j}", chance, flow)
            part = column * self.at_mean[:, j] / kept
            other = add(found, part) if is_value(found) else found + part
            found = select(broadcast(drawn, found.shape, -1), other, found)
        return found


def masked_weight(mean: Array, mask: Mask, propagation: Propagation) -> MaskedWeight:
    """The value of a masked latent site.

    Args:
        mean: M, of at least one axis.
        mask: its noise.
        propagation: how randomness flows.
    """
    like = leaf(mask.site, mean, mean, propagation, event_dim=len(mean.shape))
    return MaskedWeight(_marginal(mask, mean, like), mask, range(len(mean.shape)))


def _marginal(mask: Mask, mean: Array, like: Gaussian) -> Gaussian:
    variance = mask.ratio * squared(mean)
    return leaf(mask.site, mean, variance, like.propagation, event_dim=len(mean.shape))


def _of_each_weight(x: Any, matrix: Array, mask: Mask, flow: Propagation) -> Any:
    """What independent masks of all weights add: no two outputs share one."""
    mean = x.mean if is_value(x) else x
    second = squared(mean) + x.variance if is_value(x) else squared(mean)
    variance = affine(second, mask.ratio * squared(matrix))
    return noise(mask.site, 0 * variance, variance, flow)


def _check_shapes(x: Any, weight: MaskedWeight) -> None:
    """A mask belongs to a datum: rows of one axis are data, of several axes only some may be."""
    shape = tuple(x.shape)
    is_map = len(weight.shape) == 2 and shape and shape[-1] == weight.shape[-1]
    if not is_map or sum(size > 1 for size in shape[:-1]) > 1:
        raise no_rows(weight.mask.site, shape, weight.shape)


def no_rows(site: str, shape: tuple[int, ...], weight: tuple[int, ...]) -> UnsupportedMoments:
    """Inputs of a masked site that are no rows.

    Args:
        site: its name.
        shape: of the inputs.
        weight: shape of the site.
    """
    if len(weight) > 2 or shape[-1:] != weight[-1:]:
        return UnsupportedMoments(
            f"a linear map of inputs of shape {shape} with the masked site '{site}' of shape "
            f"{weight} is not supported: it is [out, in], and inputs [rows, in]",
            sites=[site],
            remedy="apply one matrix to inputs whose trailing axis is the contracted one, or "
            + _UNMASKED,
        )
    return UnsupportedMoments(
        f"inputs of shape {shape} of the masked site '{site}' have several axes of rows: it is "
        "not known which of them are data, with a mask of their own, and which share one",
        sites=[site],
        remedy="reshape the inputs to [rows, in] if every row has a mask of its own, or "
        + _UNMASKED,
    )


def meets_other_operation(site: str) -> UnsupportedMoments:
    """What is no map of rows of inputs.

    Args:
        site: that is masked.
    """
    return UnsupportedMoments(
        f"the masked site '{site}' of MCDropoutGuide meets an operation other than a transpose or "
        "its contraction with an input: which of its elements share a mask is not known there",
        sites=[site],
        remedy=f"apply it by a linear map (F.linear, x @ w), or {_UNMASKED}",
    )
