"""Random bits that programs draw themselves: uniform numbers, compared with a probability.

mask = u < k,   E[mask] = k,   Var[mask] = k (1 − k),   independent for each component
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.dropout.noise import noise
from moment_calculus.operations.dropout.switches import bernoulli_mask, where_mask
from moment_calculus.operations.elementwise.arithmetic import scale_shift
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.values import Gaussian, Value

_KINDS = {"lt": True, "le": True, "gt": False, "ge": False}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_REMEDY = (
    "compare the uniform numbers with one probability and choose or multiply by the outcome, as "
    "dropout does, or draw what is random at a site of the model"
)


class Uniform(Composite):
    """Random numbers, uniform on the unit interval, that are compared with one probability."""

    __slots__ = ("_mask", "_threshold", "name_of_noise")
    name = "uniform"

    def __init__(self, name: str, like: Array, propagation: Propagation) -> None:
        super().__init__(noise(name, 0 * like + 0.5, 0 * like + 1 / 12, propagation))
        self.name_of_noise = name
        self._threshold: Any = None
        self._mask: Bits | None = None

    @property
    def at_mean(self) -> Array:
        """The mean of the numbers, one half."""
        return self.source.mean

    def gaussian(self) -> NoReturn:
        """Raise UnsupportedMoments: uniform numbers are not Gaussian."""
        raise _refused("uniform numbers", self.sites)

    def compared(self, kind: str, threshold: Any) -> Bits:
        """Return where the numbers are below or above a probability; raise for a second one."""
        if kind not in _KINDS or hasattr(threshold, "sites"):
            raise _refused("uniform numbers", self.sites)
        if self._mask is None:
            self._threshold, self._mask = threshold, self._below(threshold)
        elif not _is_same(self._threshold, threshold):
            raise _refused("uniform numbers that are compared with two probabilities", self.sites)
        return self._mask if _KINDS[kind] else self._mask.logical_not()

    def _below(self, threshold: Any) -> Bits:
        propagation, axis = self.source.propagation, self.source.axis
        xp = namespace(self.source.mean)
        chance = xp.clip(0 * self.source.mean + threshold, min=0.0, max=1.0)
        name = self.name_of_noise
        return Bits(bernoulli_mask(name, chance, propagation, axis=axis))


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return numbers and one == other


class Bits(Composite):
    """Random booleans, each true with its own probability, stored as numbers 0 and 1."""

    __slots__ = ("opposite",)
    name = "bits"

    def __init__(self, source: Any, opposite: bool = False) -> None:
        super().__init__(source)  # the numbers 0 and 1 of the booleans, or of their negation
        self.opposite = opposite

    @property
    def at_mean(self) -> Array:
        """Whether true is more likely than false."""
        return self.number.mean > 0.5

    @property
    def number(self) -> Gaussian:
        """The booleans as a value of numbers 0 and 1."""
        return scale_shift(self.source, -1.0, 1.0).gaussian() if self.opposite else self.source

    def gaussian(self) -> NoReturn:
        """Raise UnsupportedMoments: booleans have no moments before they are numbers."""
        raise _refused("random booleans that are no numbers yet", self.sites)

    def logical_not(self) -> Bits:
        """Return the negated booleans."""
        return Bits(self.source, not self.opposite)

    def moved(self, move: Callable[[Any], Any]) -> Bits:
        """Apply a shape operation on values to the booleans."""
        return Bits(move(self.source), self.opposite)

    def permuted(self, order: Sequence[int]) -> Bits:
        """Return the booleans with reordered axes: ``order`` is the old axis at each place."""
        return self.moved(lambda value: permute(value, order))

    def where(self, chosen: Any, other: Any) -> Value:
        """Return ``chosen`` where the booleans are true and ``other`` elsewhere, exactly."""
        return where_mask(self.source, *((other, chosen) if self.opposite else (chosen, other)))


def compare(kind: str, left: Any, right: Any) -> Bits:
    """Compare uniform numbers with a probability, on either side."""
    if not isinstance(left, Uniform):
        kind, left, right = _MIRRORED[kind], right, left
    if not isinstance(left, Uniform):
        return left.gaussian()  # of booleans: it raises
    return left.compared(kind, right)


def _refused(what: str, sites: Any) -> UnsupportedMoments:
    return UnsupportedMoments(
        f"{what}, which the model draws, meet an operation that does not take them",
        sites=sites,
        remedy=_REMEDY,
    )
