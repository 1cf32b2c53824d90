"""Sources of the data of every step: all data, shuffled rows, or a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

Arguments = tuple[tuple, dict[str, Any]]  # positional, and by name


class Exhausted(Exception):
    """Raised when a loader has no more mini-batches."""


class AllData:
    """All data in every step: arguments of model and guide."""

    size: int | None = None  # rows of a mini-batch

    def __init__(self, args: tuple, kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs

    def arguments(self, step: int) -> Arguments:
        """Return the arguments of a step, the first being 0."""
        return self.args, self.kwargs

    def state(self) -> Any:
        """Return what later steps depend on."""
        return None

    def restore(self, state: Any) -> None:
        """Go on from a state."""


class ShuffledBatches(AllData):
    """Mini-batches of the rows of arrays, shuffled again in every epoch.

    The order follows from the seed and the number of the epoch. Rows that fill no
    mini-batch are left out of an epoch.
    """

    def __init__(
        self, args: tuple, kwargs: dict[str, Any], size: int, seed: int, take: Callable
    ) -> None:
        super().__init__(args, kwargs)
        self.rows = rows_of([*args, *kwargs.values()]) or 0
        if not 1 <= size <= self.rows:
            raise ValueError(f"batch_size must be between 1 and {self.rows} rows, got {size}")
        self.size: int = size
        self.seed, self.take = seed, take  # ``take`` picks rows of an array
        self.per_epoch = self.rows // size
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, int))

    def indices(self, step: int) -> np.ndarray:
        """Return the rows of a step's mini-batch, [size]."""
        epoch, batch = divmod(step, self.per_epoch)
        if self._order[0] != epoch:
            random = np.random.default_rng([self.seed, epoch])
            self._order = epoch, random.permutation(self.rows)
        return self._order[1][batch * self.size : (batch + 1) * self.size]

    def arguments(self, step: int) -> Arguments:
        """Return the arguments of a step, the first being 0."""
        indices = self.indices(step)

        args = tuple(self.take(part, indices) for part in self.args)
        return args, {name: self.take(part, indices) for name, part in self.kwargs.items()}


class LoaderBatches(AllData):
    """Mini-batches of an iterable, in every epoch, or of an iterator, once."""

    def __init__(
        self,
        loader: Any,
        kwargs: dict[str, Any],  # arguments that are the same for all mini-batches
        random: RandomState | None,  # the global state by which a DataLoader may shuffle
        convert: Callable[[Any], Any],  # makes arrays of the framework of a mini-batch
    ) -> None:
        super().__init__((), kwargs)
        self.convert = convert
        self.loader = Rewinding(loader, random)
        self.is_iterator = isinstance(loader, Iterator)  # it runs once
        self._next: tuple[Arguments, int | None] | None = None  # and its rows
        self.last: Arguments | None = None  # those of the latest step

    def first(self) -> Arguments:
        """Return the arguments of the next step without going on."""
        if self._next is None:
            args, kwargs = self._load()
            rows = rows_of([*args, *kwargs.values()], whole=False)
            self._next = (args, {**self.kwargs, **kwargs}), rows
        return self._next[0]

    def arguments(self, step: int) -> Arguments:
        """Return the arguments of the next step; raise Exhausted if there are no more."""
        self.last = self.first()
        assert self._next is not None
        self.size, self._next = self._next[1], None
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
        return batch_arguments(self.convert(batch))

    def state(self) -> Any:
        """Return the position of the loader, and its order."""
        return self.loader.state()

    def restore(self, state: Any) -> None:
        """Go on from a state."""
        self._next = None
        self.loader.restore(state)

    def check_resumable(self, shuffles_globally: bool) -> None:
        """Raise ValueError if the loader's order cannot be restored."""
        check_resumable(self.loader.loader, shuffles_globally)


def first_arguments(source: AllData) -> Arguments:
    """Return the arguments of the first step without going on."""
    return source.first() if isinstance(source, LoaderBatches) else source.arguments(0)


def whole_arguments(source: AllData) -> Arguments:
    """Return the arguments with all rows; of a loader those of its latest mini-batch."""
    if isinstance(source, LoaderBatches):
        return source.last or source.first()
    return source.args, source.kwargs


def batch_arguments(batch: Any) -> Arguments:
    """Return a mini-batch as arguments: of a mapping by name, of a list in order."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    if isinstance(batch, tuple | list):
        return tuple(batch), {}
    return (batch,), {}


def is_loader(argument: Any) -> bool:
    """Tell whether an argument is a source of mini-batches."""
    data = isinstance(argument, list | tuple | Mapping | str | bytes | range | set)
    known = any(hasattr(argument, name) for name in ("__array__", "shape", "keys"))
    return isinstance(argument, Iterable) and not data and not known


def rows_of(parts: Any, whole: bool = True) -> int | None:
    """Return the number of rows of arrays; if ``whole``, all have as many."""
    leaves = [*_rows_in(parts)]
    shapes = {shape[0] for _, shape in leaves if shape}
    if whole and (len(shapes) != 1 or not all(shape for _, shape in leaves)):
        kinds = ", ".join(
            f"{kind}{[*shape] if shape is not None else ''}" for kind, shape in leaves
        )
        raise ValueError(
            "batch_size cuts every argument along its first axis, which must have as many rows in "
            f"all of them, got {kinds}: bind the others with functools.partial"
        )
    return next((shape[0] for _, shape in leaves if shape), None)


def _rows_in(argument: Any) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """Yield the kind of every leaf, and its shape if it is an array."""
    if isinstance(argument, Mapping):
        argument = list(argument.values())
    if isinstance(argument, tuple | list):
        for item in argument:
            yield from _rows_in(item)
    elif argument is not None:
        shape = getattr(argument, "shape", None)
        yield type(argument).__name__, None if shape is None else tuple(shape)


# Samplers of torch whose order is fixed or follows from a generator.
SAMPLERS = (
    "SequentialSampler",
    "RandomSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
    "DistributedSampler",
)


class RandomState(Protocol):
    """A global random state."""

    def get(self) -> Any:
        """Return the state as dictionaries, lists, arrays and numbers."""

    def set(self, state: Any) -> None:
        """Restore a state that :meth:`get` returned."""


class Rewinding:
    """Iterates a loader epoch by epoch, and can return to an earlier position."""

    def __init__(self, loader: Any, random: RandomState | None) -> None:
        self.loader, self.random = loader, random
        self.epoch, self.taken, self.total = -1, 0, 0
        self._batches: Iterator | None = None
        self._start: Any = None

    @property
    def rows(self) -> int | None:
        """Return the number of rows of all data; None if the loader does not tell."""
        batches = getattr(self.loader, "batch_sampler", None)
        if batches is not None and type(batches).__name__ != "BatchSampler":
            return None  # a user's own batch sampler may leave rows out
        sampler = getattr(batches, "sampler", getattr(self.loader, "sampler", None))
        kind = type(sampler).__name__
        of_all = sampler is None or (kind in SAMPLERS and kind != "SubsetRandomSampler")
        rows: Any = getattr(self.loader, "dataset", None) if of_all else sampler
        return len(rows) if hasattr(rows, "__len__") else None

    def begin(self) -> None:
        """Begin the next epoch."""
        self.epoch, self.taken = self.epoch + 1, 0
        sampler: Any = getattr(self.loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(self.epoch)  # torch's DistributedSampler requires it
        self._start = self._random_state()
        self._batches = iter(self.loader)

    def next(self) -> Any:
        """Return the next mini-batch; None at the end of an epoch."""
        if self._batches is None:
            self.begin()
        batch = next(self._batches, None)  # type: ignore[arg-type]
        if batch is not None:
            self.taken, self.total = self.taken + 1, self.total + 1
        return batch

    def state(self) -> dict[str, Any]:
        """Return the epoch, the mini-batches taken, and the first random state."""
        own = self.loader.state_dict() if _keeps_state(self.loader) else None
        return {
            "epoch": self.epoch,
            "taken": self.taken,
            "total": self.total,
            "start": self._start,
            "own": own,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state; mini-batches before it are loaded and skipped."""
        if state["epoch"] < 0:
            return
        self.epoch = state["epoch"] - 1
        if state["own"] is not None:
            self.loader.load_state_dict(state["own"])
            self.begin()
        else:
            self._set_random_state(state["start"])
            self.begin()
            for _ in range(state["taken"]):
                next(self._batches)  # type: ignore[arg-type]
        self.taken, self.total = state["taken"], state["total"]

    def _random_state(self) -> dict[str, Any]:
        generators = [
            generator.get_state().numpy().copy() for generator in _generators(self.loader)
        ]
        return {
            "generators": generators,
            "global": None if self.random is None else self.random.get(),
        }

    def _set_random_state(self, state: dict[str, Any]) -> None:
        for generator, saved in zip(_generators(self.loader), state["generators"], strict=True):
            current = generator.get_state()  # a tensor, filled without torch
            current.numpy()[:] = saved
            generator.set_state(current)
        if self.random is not None:
            self.random.set(state["global"])


def _samplers(loader: Any) -> list[Any]:
    batches = getattr(loader, "batch_sampler", None)
    samplers = [getattr(loader, "sampler", None), getattr(batches, "sampler", None)]
    return [sampler for sampler in samplers if sampler is not None]


def _generators(loader: Any) -> list[Any]:
    """Return the generators of a loader and of its samplers, each once."""
    generators = [getattr(part, "generator", None) for part in (loader, *_samplers(loader))]
    return [
        *{id(generator): generator for generator in generators if generator is not None}.values()
    ]


def _keeps_state(loader: Any) -> bool:
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def check_resumable(loader: Any, shuffles_globally: bool) -> None:
    """Raise ValueError if the order of a loader cannot be restored."""
    # ``shuffles_globally``: the framework stores torch's global random state with a
    # checkpoint.
    if _keeps_state(loader):
        return
    samplers = _samplers(loader)
    if not samplers:
        raise _not_resumable(f"a {type(loader).__name__}")
    for sampler in samplers:
        kind = type(sampler)
        if not kind.__module__.startswith("torch.utils.data") or kind.__name__ not in SAMPLERS:
            raise _not_resumable(f"the sampler {kind.__name__}")
        random = kind.__name__ not in ("SequentialSampler", "DistributedSampler")
        if random and not shuffles_globally and getattr(sampler, "generator", None) is None:
            raise ValueError(
                "the order of the DataLoader follows from torch's global random state, which is "
                "not kept here: give it a generator of its own, "
                "DataLoader(..., generator=torch.Generator())"
            )


def _not_resumable(what: str) -> ValueError:
    return ValueError(
        f"the order of {what} cannot be restored, so that checkpoint=... could not resume the fit "
        f"exactly. What can: arrays with batch_size=..., a DataLoader with one of torch's samplers "
        f"({', '.join(SAMPLERS)}), and loaders with state_dict and load_state_dict"
    )
