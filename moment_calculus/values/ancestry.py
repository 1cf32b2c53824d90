"""The ancestors of a value, and the value computed again from them.

Under each outcome of a random mask: with a mask m of zeros and ones that is independent of
two values a and b,
    y = m ∘ a + (1 − m) ∘ b,    f(y) = m ∘ f(a) + (1 − m) ∘ f(b)
for every function f of each component: exact, though y is far from Gaussian. Dropout has
b = 0.

As a vector: dependence between elements of a batch is not stored, for there may be many,
as the effects of a plate that share a mean and a scale. Where they are summed with weights
after all, the value is computed again from its independent components, with the trailing
axis as the feature axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from moment_calculus.errors import OR_DRAW_ALL, UnsupportedMoments
from moment_calculus.values.gaussian import Gaussian, Root
from moment_calculus.values.protocols import Rewritable, Switched
from moment_calculus.values.spread import Spread, overlap
from moment_calculus.values.step import Entries, entries_of

MOST_MASKS = 4
_UNKNOWN = object()  # what has not been computed


def ancestors(
    value: Gaussian, follow_input: Callable[[Gaussian, int], bool] | None = None
) -> Iterator[Gaussian]:
    """Yield a value and all it was computed from, each once, where ``follow_input`` allows."""
    waiting, seen = [value], {value.serial}
    while waiting:
        current = waiting.pop()
        yield current
        for input_index, source in enumerate(current.step.inputs):
            allowed = follow_input is None or follow_input(current, input_index)
            if source.serial not in seen and allowed:
                seen.add(source.serial)
                waiting.append(source)


def affine_line(value: Gaussian) -> list[Gaussian]:
    """Return a Gaussian, and those of which it is an affine image, the nearest first."""
    line = [value]
    while (affine := line[-1].step.affine) is not None:
        line.append(affine[0])
    return line


def shifted_from(value: Gaussian) -> Gaussian:
    """Return the Gaussian that equals a value up to a certain shift and a broadcast."""
    while value.step.identity and len(value.step.inputs) == 1:
        source = value.step.inputs[0]
        if not _expands_to(source.shape, value.shape):
            break
        value = source
    return value


def _expands_to(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    tail = wide[len(wide) - len(shape) :]
    return len(shape) <= len(wide) and all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def is_rearranged(left: Gaussian, right: Gaussian) -> bool:
    """Return whether two dependent values have elements of a common site in different places.

    Then an element of the batch of one depends on another element of the batch of the
    other, as in ``z[1:] - z[:-1]``.
    """
    shared = overlap(left, right)
    if not shared:
        return False
    arranged = _last_rearrangements(left, shared) | _last_rearrangements(right, shared)
    return len(arranged) > len(shared)


def _last_rearrangements(value: Gaussian, sites: frozenset[str]) -> set[tuple[str, int]]:
    """Return pairs of a site and the last ancestor that rearranged elements of the site."""
    rearrangements: set[tuple[str, int]] = set()

    def follow_input(current: Gaussian, input_index: int) -> bool:
        source = current.step.inputs[input_index]
        if current.step.follows(input_index):
            return bool(source.sites & sites)
        rearrangements.update((site, current.serial) for site in source.sites & sites)
        return False

    for current in ancestors(value, follow_input):
        if not current.step.inputs:
            rearrangements.update((site, current.serial) for site in current.sites & sites)
    return rearrangements


class Branches:
    """A mask, and the value where it is one and where it is zero."""

    # mask: of the shape of the value. join: computes a value from a mask and two
    # branches. make: computes a branch, given a choice between the branches of other
    # values.
    def __init__(self, mask: Gaussian, join: Callable, make: Callable[[Choice], Any]) -> None:
        self.mask, self.join, self._make = mask, join, make

    @cached_property
    def on(self) -> Any:
        """Return the value or array where the mask is one."""
        return self._make(lambda branches: branches.on)

    @cached_property
    def off(self) -> Any:
        """Return the value or array where the mask is zero."""
        return self._make(lambda branches: branches.off)

    @property
    def mask_depth(self) -> int:
        """Return how many masks the value sees, one after the other."""
        return 1 + max(_mask_depth(self.on), _mask_depth(self.off))

    def map(self, change: Callable[[Any], Any], mask: Gaussian | None = None) -> Branches:
        """Return the branches of another value, computed by ``change`` from those of this one."""
        make = lambda choice: change(choice(self))  # noqa: E731
        return Branches(self.mask if mask is None else mask, self.join, make)

    def join_branches(self, change: Callable[[Any], Any]) -> Gaussian:
        """Return ``change`` of both branches, joined; UnsupportedMoments for too many masks."""
        if (count := self.mask_depth) > MOST_MASKS:
            raise UnsupportedMoments(
                f"a function of a value that {count} random masks switch, one after the other: "
                f"its moments are sums over all outcomes of at most {MOST_MASKS} masks",
                sites=self.mask.sites,
                remedy="put a linear map between dropout and the function, drop the outputs of "
                "the function instead of its inputs, or evaluate without dropout" + OR_DRAW_ALL,
            )
        return self.join(self.mask, change(self.on), change(self.off))


Choice = Callable[[Any], Any]


def _mask_depth(part: Any) -> int:
    branches = branches_of(part) if isinstance(part, Gaussian) else None
    return 0 if branches is None else branches.mask_depth


def branches_of(value: Gaussian) -> Branches | None:
    """Return the branches of a value that a mask switches; None of any other value.

    They are known where the value is computed from a mask by operations on single
    components. A linear map ends them: its outputs see many masks, and are taken as
    Gaussian.
    """
    return from_inputs(value, "branches", Switched, _branches)


def _branches(value: Gaussian, parts: list[Branches | None]) -> Branches | None:
    return value.step.branches(value, parts) if isinstance(value.step, Switched) else None


def from_inputs(value: Gaussian, key: str, kinds: Any, compute: Callable[..., Any]) -> Any:
    """Return what is computed of a value from that of its inputs, and remembered by a key.

    It is asked of the inputs of steps of some kinds; a chain may be too long for a recursion.
    """
    waiting = [value]
    while waiting:
        current = waiting[-1]
        sources = current.step.inputs if isinstance(current.step, kinds) else ()
        parts = [source.memo.arrays.get(key, _UNKNOWN) for source in sources]
        if _UNKNOWN in parts:
            waiting += [source for source in sources if key not in source.memo.arrays]
            continue
        arrays = current.memo.arrays
        if key not in arrays:
            arrays[key] = compute(current, parts)
        waiting.pop()
    return value.memo.arrays[key]


def combine_branches(
    values: Sequence[Any], parts: Sequence[Branches | None], again: Callable
) -> Branches | None:
    """Return the branches of an operation on values of one shape, by their newest mask."""
    switched = [part for part in parts if part is not None]
    if not switched:
        return None
    newest = max(switched, key=lambda part: part.mask.serial)

    def make(choice: Choice) -> Any:
        own = lambda part: part is not None and part.mask is newest.mask  # noqa: E731
        pairs = zip(values, parts, strict=True)
        return again(*(choice(part) if own(part) else value for value, part in pairs))

    return Branches(newest.mask, newest.join, make)


def as_vector(value: Gaussian) -> Gaussian | None:
    """Return a batch of scalars with its trailing axis as feature axis; None if that is unknown.

    Exact where the value is computed from independent components and scalars by sums,
    products and functions of each component. A component used twice is one vector used
    twice.
    """
    vector = value.memo.values.get("vector")
    if vector is None:
        vector = _compute_vector(value)
        if vector is not None:
            value.memo.values["vector"] = vector
    return vector


def _compute_vector(value: Gaussian) -> Gaussian | None:
    if value.axis is not None or not value.shape:
        return value if value.axis == -1 else None
    entries = entries_of(value)
    switched = branches_of(value) is not None  # a root would lose its branches
    if value.independent and not switched and (entries is not None or value.step.affine is None):
        return _root(value, entries, Spread(value.variance))
    if entries is not None and not switched:
        covariance = partial(entries.covariance, value.variance)
        return _root(
            value,
            entries,
            Spread(value.variance, covariance, value.propagation.has_full_covariance),
        )
    step = value.step
    return step.as_vector(value) if isinstance(step, Rewritable) else None


def _root(value: Gaussian, entries: Entries | None, spread: Spread) -> Gaussian:
    root, flow = Root(entries_override=entries), value.propagation
    return Gaussian(
        value.mean, spread, root, support=value.support, ties=value.ties, propagation=flow
    )


def from_vector_parts(combine: Callable[..., Any], *parts: Gaussian) -> Gaussian | None:
    """Return ``combine`` of batches of scalars as vectors; None if one of them is not known so."""
    vectors = [as_vector(part) for part in parts]
    if any(vector is None for vector in vectors):
        return None
    result = combine(*vectors)
    return None if result is None else result.gaussian()
