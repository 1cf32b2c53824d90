"""Random bits that programs draw by hand: uniform numbers, and where they are below a probability.

mask = u < k,   E[mask] = k,   Var[mask] = k (1 − k),   independent for each component
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.dropout.noise import noise
from moment_calculus.operations.dropout.switches import mask, select
from moment_calculus.operations.elementwise.arithmetic import scale_shift
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import Gaussian, Value

_KINDS = {"lt": True, "le": True, "gt": False, "ge": False}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_REMEDY = (
    "compare the uniform numbers with one probability and choose or multiply by the outcome, as "
    "dropout does, or draw what is random at a site of the model"
)


class Uniform(Composite):
    """Numbers uniform on the unit interval, drawn once, which are compared with a probability.

    Args:
        name: of the noise.
        like: array of its shape and precision.
        propagation: how randomness flows.
    """

    __slots__ = ("_mask", "_threshold", "name_of_noise")
    name = "uniform"

    def __init__(self, name: str, like: Array, propagation: Propagation) -> None:
        super().__init__(noise(name, 0 * like + 0.5, 0 * like + 1 / 12, propagation))
        self.name_of_noise = name
        self._threshold: Any = None
        self._mask: Bits | None = None

    @property
    def at_mean(self) -> Array:
        """One half."""
        return self.source.mean

    def gaussian(self) -> NoReturn:
        """Refuse: uniform numbers are not Gaussian.

        Raises:
            UnsupportedMoments: always.
        """
        raise _refused("uniform numbers", self.sites)

    def compared(self, kind: str, threshold: Any) -> Bits:
        """Where the numbers are below or above a probability.

        Args:
            kind: ``"lt"``, ``"le"``, ``"gt"`` or ``"ge"``.
            threshold: the probability, certain, broadcastable.

        Raises:
            UnsupportedMoments: for another comparison, or with a second probability.
        """
        if kind not in _KINDS or hasattr(threshold, "sites"):
            raise _refused("uniform numbers", self.sites)
        if self._mask is None:
            self._threshold, self._mask = threshold, self._below(threshold)
        elif not _is_same(self._threshold, threshold):
            raise _refused("uniform numbers that are compared with two probabilities", self.sites)
        return self._mask if _KINDS[kind] else self._mask.negated()

    def _below(self, threshold: Any) -> Bits:
        flow, axis = self.source.propagation, self.source.axis
        xp = namespace(self.source.mean)
        chance = xp.clip(0 * self.source.mean + threshold, min=0.0, max=1.0)
        name = self.name_of_noise
        return Bits(mask(name, chance, flow, axis=axis))


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return numbers and one == other


class Bits(Composite):
    """Random booleans, drawn once: one with a probability for each component.

    Args:
        source: the numbers 0 and 1 that they stand for, or their opposites.
        opposite: whether they are the opposites.
    """

    __slots__ = ("opposite",)
    name = "bits"

    def __init__(self, source: Any, opposite: bool = False) -> None:
        super().__init__(source)
        self.opposite = opposite

    @property
    def at_mean(self) -> Array:
        """Whether one is the likelier."""
        return self.number.mean > 0.5

    @property
    def number(self) -> Gaussian:
        """The numbers 0 and 1 that they stand for."""
        return scale_shift(self.source, -1.0, 1.0).gaussian() if self.opposite else self.source

    def gaussian(self) -> NoReturn:
        """Refuse: booleans have no moments before they are numbers.

        Raises:
            UnsupportedMoments: always.
        """
        raise _refused("random booleans that are no numbers yet", self.sites)

    def negated(self) -> Bits:
        """The opposite."""
        return Bits(self.source, not self.opposite)

    def moved(self, move: Callable[[Any], Any]) -> Bits:
        """The same with its elements elsewhere.

        Args:
            move: shape operation on values.
        """
        return Bits(move(self.source), self.opposite)

    def permuted(self, order: Sequence[int]) -> Bits:
        """The same with its axes in another order.

        Args:
            order: the old axis at each new place.
        """
        return self.moved(lambda value: permute(value, order))

    def select(self, chosen: Any, other: Any) -> Value:
        """``chosen`` where they are true and ``other`` elsewhere, exactly.

        Args:
            chosen: value, array or number.
            other: value, array or number.
        """
        return select(self.source, *((other, chosen) if self.opposite else (chosen, other)))


def compare(kind: str, left: Any, right: Any) -> Bits:
    """A comparison of uniform numbers with a probability.

    Args:
        kind: name of the comparison.
        left: either of both.
        right: the other one.

    Raises:
        UnsupportedMoments: see :meth:`Uniform.compared`.
    """
    if not isinstance(left, Uniform):
        kind, left, right = _MIRRORED[kind], right, left
    if not isinstance(left, Uniform):
        return left.gaussian()  # booleans
    return left.compared(kind, right)


def _refused(what: str, sites: Any) -> UnsupportedMoments:
    return UnsupportedMoments(
        f"{what}, which the model draws, meet an operation that does not take them",
        sites=sites,
        remedy=_REMEDY,
    )
