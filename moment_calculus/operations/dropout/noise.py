"""Independent noise that multiplies values, masks that switch between two, and random bits.

Noise z with E[z] = 1 and Var[z] = r has E[x∘z] = E[x] and Cov[x∘z] = Cov[x] + r diag(Var[x]
+ E[x]²): x∘z is x plus a deviation x∘(z − 1) that is uncorrelated with x and all else.

A mask m with E[m] = k makes y = m∘a + (1 − m)∘b: E[y] = k E[a] + (1 − k) E[b], and Var[y]
is that of k∘a + (1 − k)∘b plus k (1 − k) E[(a − b)²]. Functions of y are computed for each
branch, exactly: see values/ancestry.py. Dropout has a = x/k and b = 0. Programs that draw
bits themselves compare uniform numbers u with a probability: m = u < k.

A mask y with a random probability p is independent of all else given p: E[y] = E[p],
Var[y] = E[p] (1 − E[p]), and every covariance with another value is that of p.
Source: Shekhovtsov et al. 2018, eq. 8, sections 3.4 and B.1; Srivastava et al. 2014.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from moment_calculus.errors import OR_DRAW_ALL, ApproximationWarning, UnsupportedMoments, warn_user
from moment_calculus.numerics.arrays import Array, namespace, positive_part, squared
from moment_calculus.numerics.derivatives import may_read
from moment_calculus.operations.elementwise.products import multiply_exactly
from moment_calculus.operations.elementwise.stated import Stated, stated
from moment_calculus.operations.elementwise.sums import add_any, subtract, try_add
from moment_calculus.operations.elementwise.unary import is_value, scale_shift
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Deferred, Gaussian, Root, Spread, Value
from moment_calculus.values.ancestry import Branches, as_vector, branches_of, from_vector_parts
from moment_calculus.values.deferred import Composite
from moment_calculus.values.elementwise import Affine
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.protocols import DataStep
from moment_calculus.values.spread import all_elements, overlap
from moment_calculus.values.step import Entries

__all__ = ["Bits", "Uniform", "bernoulli_mask", "compare_noise", "drop", "noise", "noise_name"]

_numbers = itertools.count(1)


@dataclass(frozen=True, eq=False)
class Noise(Root, DataStep):
    """Step of noise drawn anew for every datum: noisy certain inputs, or the noise alone."""


def noise_name(what: str = "dropout") -> str:
    """Return a new name for noise; noises with different names are independent."""
    return f"{what} {next(_numbers)}"


def variance_ratio(rate: Any) -> Any:
    """Return the variance p/(1 − p) of inverted noise z ~ Bernoulli(1 − p)/(1 − p)."""
    return rate / (1 - rate)


def noise(
    name: str, mean: Array, variance: Array, propagation: Propagation, *, axis: int | None = -1
) -> Gaussian:
    """Make noise with independent components; noise of the same name is the same."""
    return Gaussian(
        mean,
        Spread(variance),
        Noise(),
        axis=axis if len(mean.shape) else None,
        support=all_elements([name]),
        propagation=propagation,
    )


def multiply_by_noise(
    x: Any, ratio: Any, name: str, propagation: Propagation, *, axis: int | None = -1
) -> Gaussian:
    """Return x∘z, exact in mean and covariance, for noise of variance ``ratio`` ≥ 0."""
    if not is_value(x):
        return noise(name, x, ratio * squared(x), propagation, axis=axis)
    x = x.gaussian()
    xp = namespace(x.mean)
    variance = ratio * (x.variance + squared(x.mean))
    return try_add(x, noise(name, xp.zeros_like(x.mean), variance, propagation, axis=x.axis))


class _Pair(NamedTuple):
    """The values of both branches."""

    on: Any
    off: Any


@dataclass(frozen=True, eq=False)
class _MaskStep(Affine, DataStep):
    """Step of a mask, or of two certain numbers that it chooses from: scale · mask + shift."""

    def branches(self, value: Gaussian, input_branches: Any) -> Branches:
        like = namespace(value.mean).zeros_like(value.mean)
        both = _Pair(like + self.scale + self.shift, like + self.shift)
        return Branches(self.source, choose_by_mask, lambda choice: choice(both))

    def entries(self, value: Gaussian) -> Entries | None:
        return Entries.of(value) if value.independent else None

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        return from_vector_parts(lambda source: switch(source, self.scale, self.shift), self.source)


@dataclass(frozen=True, eq=False)
class _MaskedChoice(Affine):
    """Step of a choice between two values by a mask."""

    mask_branches: Branches = None  # type: ignore[assignment]  # both values
    affine = None  # type: ignore[assignment]

    def branches(self, value: Gaussian, input_branches: Any) -> Branches:
        return self.mask_branches

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        mask = as_vector(self.mask_branches.mask)
        parts = self.mask_branches.on, self.mask_branches.off
        on, off = (as_vector(part) if isinstance(part, Gaussian) else part for part in parts)
        return None if mask is None or on is None or off is None else choose_by_mask(mask, on, off)


@dataclass(frozen=True, eq=False)
class Drawn(Stated):
    """Step of zeros and ones that are drawn with the probabilities of the source."""


def bernoulli_mask(
    name: str, chance: Any, propagation: Propagation, *, axis: int | None = -1
) -> Gaussian:
    """Make a mask of zeros and ones, independent given ``chance``, the probability of one."""
    if is_value(chance):
        chance = chance.gaussian()
        _check_probability(chance)
        mean = chance.mean
        return switch(stated(chance, mean, positive_part(mean * (1 - mean)), Drawn))
    return switch(noise(name, chance, chance * (1 - chance), propagation, axis=axis))


def _check_probability(chance: Gaussian) -> None:
    """Raise UnsupportedMoments if a mean is known not to be between 0 and 1."""
    mean = chance.mean
    if may_read(mean) and bool(namespace(mean).any((mean < 0) | (mean > 1))):
        raise UnsupportedMoments(
            "a Bernoulli draw with a probability whose mean is not between 0 and 1",
            sites=chance.sites,
            remedy="pass it through a sigmoid, or another function with values between 0 and 1",
        )


def switch(source: Gaussian, scale: Any = 1.0, shift: Any = 0.0) -> Gaussian:
    """Return scale · source + shift, known to take two values, for a source of zeros and ones."""
    return _with_step(scale_shift(source, scale, shift).gaussian(), _MaskStep(source, scale, shift))


def _with_step(value: Gaussian, step: Affine) -> Gaussian:
    return Gaussian(
        value.mean,
        value.spread,
        step,
        axis=value.axis,
        ties=value.ties,
        propagation=value.propagation,
    )


def where_mask(mask: Gaussian, on: Any, off: Any) -> Gaussian:
    """Return ``on`` where a mask is one and ``off`` where it is zero, exactly."""
    mask_branches = branches_of(mask)
    assert mask_branches is not None
    return choose_by_mask(mask_branches.mask, on, off)


def choose_by_mask(source: Gaussian, on: Any, off: Any) -> Gaussian:
    """Return ``on`` or ``off`` by zeros and ones that are the mask of :class:`Branches`."""
    on, off = _given_outcome(source, on, "on"), _given_outcome(source, off, "off")
    if not is_value(on) and not is_value(off):
        return switch(source, on - off, off)
    plain = multiply_exactly(source, subtract(on, off).gaussian())
    plain = add_any(plain, off)
    branches = [_broadcast_branch(part, plain) for part in (source, on, off)]
    both = Branches(branches[0], choose_by_mask, lambda choice: choice(_Pair(*branches[1:])))
    return _with_step(plain, _MaskedChoice(plain, 1.0, 0.0, mask_branches=both))


def _broadcast_branch(branch: Any, like: Gaussian) -> Any:
    """Broadcast a branch to the shape and feature axis of the value."""
    if isinstance(branch, Gaussian):
        return broadcast(branch, like.shape, like.axis)
    if isinstance(branch, Deferred):
        same = branch.shape == like.shape and branch.base.axis == like.axis
        return branch if same else branch.moved(lambda inner: _broadcast_branch(inner, like))
    return namespace(like.mean).zeros_like(like.mean) + branch


def _given_outcome(source: Gaussian, branch: Any, outcome: str) -> Any:
    """Return a branch given the outcome of the mask that chooses it; raise if unknown."""
    if not is_value(branch) or not overlap(source, branch):
        return branch
    mask_branches = branches_of(branch.gaussian())
    if mask_branches is not None and mask_branches.mask is source:
        return getattr(mask_branches, outcome)
    raise UnsupportedMoments(
        "a function or product of a value that a random mask switched and of what was computed "
        "with its mask, or with other elements of it",
        sites=branch.sites,
        remedy="put a linear map between the mask and the operation, or draw a mask of its own for "
        "each use" + OR_DRAW_ALL,
    )


def warn_of_masks(value: Gaussian, what: str) -> None:
    """Warn of a function of several elements that come straight from dropout."""
    # The function takes them as jointly Gaussian, while each is one of two values. Root
    # mean square errors for inputs of deviation 1.5, rates of 0.1 to 0.5 and 3, 10 and 32
    # elements (means in standard deviations; variances by factors): softmax 0.05, 0.1,
    # 0.2 and 1.5, 1.7, 2.5 (once 1800); logsumexp 0.03, 0.08, 0.3 and 1.3, 1.8, 3.5;
    # layer normalisation 0.1, 0.03, 0.01 and 1.5, 1.1, 1.05. A log-likelihood of 3 or 10
    # classes was off by up to 2.5 %.
    if branches_of(value) is not None:
        warn_user(
            f"{what} of values straight after dropout takes them as Gaussian, though a mask makes "
            "each one of two: means are off by 0.1 of a standard deviation, variances by factors; "
            "put dropout before the linear map, or draw all sites: propagation='sampled'",
            ApproximationWarning,
        )


def drop(
    x: Any,
    rate: float,
    name: str,
    propagation: Propagation,
    *,
    shape: Sequence[int] | None = None,  # of the mask; by default that of x
    axis: int | None = -1,
) -> Gaussian:
    """Return x m/k with a mask m of probability k = 1 − rate: inverted dropout."""
    # Exact in functions of single components. A map of several components sees many masks
    # and is taken as Gaussian. Measured for relu and tanh behind random maps of 2, 8 and
    # 32 inputs (mean 0.3, deviation 0.9): at a rate of 0.2 means are off by at most 0.32,
    # 0.17 and 0.07 of their standard deviations (rms 0.08, 0.03, 0.01); at 0.5 by 1.5,
    # 0.45 and 0.24 (rms 0.32, 0.10, 0.03), most where relu is nearly always zero.
    like = x.at_mean if is_value(x) else x
    wide = tuple(like.shape)
    part = like[tuple(slice(n) for n in (wide if shape is None else shape))]
    chance = namespace(like).ones_like(part) * (1 - rate)
    switch = broadcast(bernoulli_mask(name, chance, propagation, axis=axis if wide else None), wide)
    return where_mask(
        switch, scale_shift(x, 1 / (1 - rate)) if is_value(x) else x / (1 - rate), 0.0
    )


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
        if kind not in _KINDS:
            raise _refused("uniform numbers", self.sites)
        if self._mask is None:
            self._threshold, self._mask = threshold, self._below(threshold)
        elif not _is_same(self._threshold, threshold):
            raise _refused("uniform numbers that are compared with two probabilities", self.sites)
        return self._mask if _KINDS[kind] else self._mask.logical_not()

    def _below(self, threshold: Any) -> Bits:
        propagation, axis = self.source.propagation, self.source.axis
        xp, name = namespace(self.source.mean), self.name_of_noise
        chance = threshold
        if not is_value(threshold):
            chance = xp.clip(0 * self.source.mean + threshold, min=0.0, max=1.0)
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


def compare_noise(kind: str, left: Any, right: Any) -> Bits:
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
