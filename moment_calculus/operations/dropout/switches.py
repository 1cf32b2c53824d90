"""Random masks that switch between two values, component by component.

y = m∘a + (1 − m)∘b with E[m] = k: E[y] = k E[a] + (1 − k) E[b], and Var[y] is that of
k∘a + (1 − k)∘b plus k (1 − k) E[(a − b)²]. Functions of y are computed for each branch,
exactly: see values/ancestry.py. Dropout has a = x/k and b = 0.
Source: Srivastava et al. 2014; the law of total covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from moment_calculus.errors import OR_DRAW_ALL, ApproximationWarning, UnsupportedMoments, warn_user
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.dropout.noise import noise
from moment_calculus.operations.elementwise.arithmetic import subtract
from moment_calculus.operations.elementwise.multiplication import multiply_exactly
from moment_calculus.operations.elementwise.sums import add_any
from moment_calculus.operations.elementwise.unary import is_value, scale_shift
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.affine import Affine
from moment_calculus.values.ancestry import Branches, branches_of
from moment_calculus.values.entries import Entries
from moment_calculus.values.support import overlap
from moment_calculus.values.vectors import as_vector, from_vector_parts


class _Pair(NamedTuple):
    """The values of both branches."""

    on: Any
    off: Any


@dataclass(frozen=True, eq=False)
class MaskStep(Affine):
    """Step of a mask, or of two certain numbers that it chooses from: scale · mask + shift."""

    data = True
    elementwise = False

    def branches(self, value: Gaussian, parts: Any) -> Branches:
        """Return both numbers as branches."""
        like = namespace(value.mean).zeros_like(value.mean)
        both = _Pair(like + self.scale + self.shift, like + self.shift)
        return Branches(self.source, choose_by_mask, lambda choice: choice(both))

    def entries(self, value: Gaussian) -> Entries | None:
        """Return the entries of the mask itself, if they are independent."""
        return Entries.of(value) if value.independent else None

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the switch of the mask as a vector."""
        return from_vector_parts(
            lambda source: _switch(source, self.scale, self.shift), self.source
        )


@dataclass(frozen=True, eq=False)
class MaskedChoice(Affine):
    """Step of a choice between two values by a mask."""

    mask_branches: Branches = None  # type: ignore[assignment]  # both values
    affine = None  # type: ignore[assignment]
    elementwise = False

    def branches(self, value: Gaussian, parts: Any) -> Branches:
        """Return the branches that it was made from."""
        return self.mask_branches

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the choice with the mask and both values as vectors."""
        mask = as_vector(self.mask_branches.mask)
        parts = self.mask_branches.on, self.mask_branches.off
        on, off = (as_vector(part) if isinstance(part, Gaussian) else part for part in parts)
        return None if mask is None or on is None or off is None else choose_by_mask(mask, on, off)


def bernoulli_mask(
    name: str, chance: Array, propagation: Propagation, *, axis: int | None = -1
) -> Gaussian:
    """Make a mask of zeros and ones, independent for each component; ``chance`` is P(one)."""
    return _switch(noise(name, chance, chance * (1 - chance), propagation, axis=axis), 1.0, 0.0)


def _switch(source: Gaussian, scale: Any, shift: Any) -> Gaussian:
    return _with_step(scale_shift(source, scale, shift).gaussian(), MaskStep(source, scale, shift))


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
        return _switch(source, on - off, off)
    plain = multiply_exactly(source, subtract(on, off).gaussian())
    plain = add_any(plain, off)
    branches = [_broadcast_branch(part, plain) for part in (source, on, off)]
    both = Branches(branches[0], choose_by_mask, lambda choice: choice(_Pair(*branches[1:])))
    return _with_step(plain, MaskedChoice(plain, 1.0, 0.0, both))


def _broadcast_branch(part: Any, like: Gaussian) -> Any:
    """Broadcast a branch to the shape and feature axis of the value."""
    if isinstance(part, Gaussian):
        return broadcast(part, like.shape, like.axis)
    if isinstance(part, Deferred):
        same = part.shape == like.shape and part.base.axis == like.axis
        return part if same else part.moved(lambda inner: _broadcast_branch(inner, like))
    return namespace(like.mean).zeros_like(like.mean) + part


def _given_outcome(source: Gaussian, branch: Any, outcome: str) -> Any:
    """Return a branch given the outcome of the mask that chooses it; raise if unknown."""
    if not is_value(branch) or not overlap(source, branch):
        return branch
    mask_branches = branches_of(branch.gaussian())
    if mask_branches is not None and mask_branches.mask is source:
        return getattr(mask_branches, outcome)
    raise UnsupportedMoments(
        "a function or product of a value that dropout switched and of what was computed with "
        "its mask, or with other elements of it",
        sites=branch.sites,
        remedy="put a linear map between dropout and the operation, or draw a mask of its own for "
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
