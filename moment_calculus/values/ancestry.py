"""The values behind a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.support import overlap


def ancestors(
    value: Gaussian, onwards: Callable[[Gaussian, int], bool] = lambda value, place: True
) -> Iterator[Gaussian]:
    """A value and all values that it was made from, each once.

    Args:
        value: where to begin.
        onwards: whether to go on to an input, given the value and the place of the input.
    """
    waiting, seen = [value], {value.serial}
    while waiting:
        current = waiting.pop()
        yield current
        for place, source in enumerate(current.step.inputs):
            if source.serial not in seen and onwards(current, place):
                seen.add(source.serial)
                waiting.append(source)


def affine_line(value: Gaussian) -> list[Gaussian]:
    """A Gaussian, and those of which it is an affine image, the nearest first.

    Args:
        value: where to begin.
    """
    found = [value]
    while (affine := found[-1].step.affine) is not None:
        found.append(affine[0])
    return found


def shifted_from(value: Gaussian) -> Gaussian:
    """The Gaussian that a value is, but for a certain shift and for a broadcast.

    Args:
        value: where to begin.
    """
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
    """Whether two dependent values see elements of a common site in different places.

    Then an element of the batch of one depends on another element of the batch of the other, as in
    ``z[1:] - z[:-1]``.

    Args:
        left: a value.
        right: a value aligned with it.
    """
    shared = overlap(left, right)
    if not shared:
        return False
    arranged = _arrangements(left, shared) | _arrangements(right, shared)
    return len(arranged) > len(shared)


def _arrangements(value: Gaussian, sites: frozenset[str]) -> set[tuple[str, int]]:
    """For each site the values that, of all ancestors, were the last to put elements elsewhere."""
    found: set[tuple[str, int]] = set()

    def onwards(current: Gaussian, place: int) -> bool:
        source = current.step.inputs[place]
        if current.step.follows(place):
            return bool(source.sites & sites)
        found.update((site, current.serial) for site in source.sites & sites)
        return False

    for current in ancestors(value, onwards):
        if not current.step.inputs:
            found.update((site, current.serial) for site in current.sites & sites)
    return found
