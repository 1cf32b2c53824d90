"""Where the data of each step come from: all at once, shuffled mini-batches, or a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from moment_calculus.optimisation.loaders import RandomState, Rewinding, check_resumable

Arguments = tuple[tuple, dict[str, Any]]  # positional, and by name


class Exhausted(Exception):
    """There are no more mini-batches; the message says of what."""


class Whole:
    """All data in every step.

    Args:
        args: arguments of model and guide.
        named: likewise, by name.
    """

    size: int | None = None  # rows of a mini-batch

    def __init__(self, args: tuple, named: dict[str, Any]) -> None:
        self.args, self.named = args, named

    def arguments(self, step: int) -> Arguments:
        """Arguments of a step, the first being 0."""
        return self.args, self.named

    def state(self) -> Any:
        """What later steps depend on."""
        return None

    def restore(self, state: Any) -> None:
        """Go on from a state."""


class Shuffled(Whole):
    """Mini-batches of the rows of arrays, shuffled anew in every epoch.

    The order follows from the seed and the number of the epoch. Rows that fill no mini-batch are
    left out of an epoch.

    Args:
        args: arguments of model and guide.
        named: likewise, by name.
        size: rows of a mini-batch.
        seed: of the order.
        take: picks rows of an array.
    """

    def __init__(
        self, args: tuple, named: dict[str, Any], size: int, seed: int, take: Callable
    ) -> None:
        super().__init__(args, named)
        self.rows = rows_of([*args, *named.values()]) or 0
        if not 1 <= size <= self.rows:
            raise ValueError(f"batch_size must be between 1 and {self.rows} rows, got {size}")
        self.size: int = size
        self.seed, self.take = seed, take
        self.per_epoch = self.rows // size
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, int))

    def indices(self, step: int) -> np.ndarray:
        """Rows of a step's mini-batch, [size]."""
        epoch, place = divmod(step, self.per_epoch)
        if self._order[0] != epoch:
            random = np.random.default_rng([self.seed, epoch])
            self._order = epoch, random.permutation(self.rows)
        return self._order[1][place * self.size : (place + 1) * self.size]

    def arguments(self, step: int) -> Arguments:
        """Arguments of a step, the first being 0."""
        return self.rows_at(self.indices(step))

    def rows_at(self, indices: Any) -> Arguments:
        """The arguments' rows.

        Args:
            indices: of the rows, [size].
        """
        args = tuple(self.take(part, indices) for part in self.args)
        return args, {name: self.take(part, indices) for name, part in self.named.items()}


class Loaded(Whole):
    """Mini-batches of a DataLoader, of another iterable, or of an iterator.

    Args:
        loader: iterated once for each epoch; an iterator once.
        named: further arguments, the same for all mini-batches.
        random: the host's global random state, which a DataLoader shuffles by; None if it has none.
        convert: makes arrays of the host of a mini-batch.
    """

    def __init__(
        self,
        loader: Any,
        named: dict[str, Any],
        random: RandomState | None,
        convert: Callable[[Any], Any],
    ) -> None:
        super().__init__((), named)
        self.convert = convert
        self.loader = Rewinding(loader, random)
        self.is_iterator = iter_is_itself(loader)
        self._next: Arguments | None = None
        self.last: Arguments | None = None  # that was given

    def first(self) -> Arguments:
        """The arguments of the next step, which stay the next."""
        args, named = self._first()
        return args, {**self.named, **named}

    def _first(self) -> Arguments:
        if self._next is None:
            self._next = self._load()
        return self._next

    def arguments(self, step: int) -> Arguments:
        """Arguments of the next step.

        Raises:
            Exhausted: if there are no more.
        """
        found, self._next = self._first(), None
        args, named = found
        self.size = rows_of([*args, *named.values()], whole=False)
        self.last = args, {**self.named, **named}
        return self.last

    def _load(self) -> Arguments:
        batch = self.loader.next()
        if batch is None and not self.is_iterator and self.loader.taken:
            self.loader.begin()
            batch = self.loader.next()
        if batch is None and not self.loader.total:
            raise ValueError(
                "the loader gives no mini-batches: it may be spent, or drop the last one of fewer "
                "rows than batch_size"
            )
        if batch is None:
            raise Exhausted(f"there were no more mini-batches after {self.loader.total}")
        return arguments_of(self.convert(batch))

    def state(self) -> Any:
        """What later steps depend on: where in which order the loader is."""
        return self.loader.state()

    def restore(self, state: Any) -> None:
        """Go on from a state."""
        self._next = None
        self.loader.restore(state)

    def check_resumable(self, shuffles_globally: bool) -> None:
        """Refuse a loader whose order cannot be restored; see :func:`check_resumable`."""
        check_resumable(self.loader.loader, shuffles_globally)


def first_of(source: Whole) -> Arguments:
    """The arguments of the first step, which stay the first.

    Args:
        source: of the data.
    """
    return source.first() if isinstance(source, Loaded) else source.arguments(0)


def arguments_of(batch: Any) -> Arguments:
    """A mini-batch as arguments: by name if it is a dictionary, in order if it is a list.

    Args:
        batch: as a loader gives it.
    """
    if isinstance(batch, Mapping):
        return (), dict(batch)
    if isinstance(batch, tuple | list):
        return tuple(batch), {}
    return (batch,), {}


def is_loader(argument: Any) -> bool:
    """Whether an argument is a source of mini-batches: an iterable that is no data.

    Args:
        argument: of the model; lists, tuples, dictionaries, arrays and strings are data.
    """
    data = isinstance(argument, list | tuple | Mapping | str | bytes | range | set)
    known = any(hasattr(argument, name) for name in ("__array__", "shape", "keys"))
    return isinstance(argument, Iterable) and not data and not known


def iter_is_itself(loader: Any) -> bool:
    """Whether a loader can be iterated once only."""
    return isinstance(loader, Iterator)


def rows_of(parts: Any, whole: bool = True) -> int | None:
    """The number of rows that arrays have in common.

    Args:
        parts: arrays, and dictionaries, lists and tuples of arrays.
        whole: whether there may be nothing but arrays of as many rows.

    Raises:
        ValueError: if the arrays do not have as many rows each, or something is no array.
    """
    found = [*_rows_in(parts)]
    shapes = {shape[0] for _, shape in found if shape}
    if whole and (len(shapes) != 1 or not all(shape for _, shape in found)):
        named = ", ".join(f"{kind}{[*shape] if shape is not None else ''}" for kind, shape in found)
        raise ValueError(
            "batch_size cuts every argument along its first axis, which must have as many rows in "
            f"all of them, got {named}: bind the others with functools.partial"
        )
    return next((shape[0] for _, shape in found if shape), None)


def _rows_in(part: Any) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """The kind of every leaf, and its shape if it is an array."""
    if isinstance(part, Mapping):
        part = list(part.values())
    if isinstance(part, tuple | list):
        for item in part:
            yield from _rows_in(item)
    elif part is not None:
        shape = getattr(part, "shape", None)
        yield type(part).__name__, None if shape is None else tuple(shape)
