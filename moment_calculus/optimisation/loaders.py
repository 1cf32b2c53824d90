"""Loaders that can be rewound: an epoch's order follows from the random state at its start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

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
        """Return the epoch, the mini-batches taken of it, and the random state at its start."""
        own = self.loader.state_dict() if _keeps_state(self.loader) else None
        return {
            "epoch": self.epoch,
            "taken": self.taken,
            "total": self.total,
            "start": self._start,
            "own": own,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state; mini-batches taken before it are loaded again, and skipped."""
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
            current = generator.get_state()  # a tensor, filled here without importing torch
            current.numpy()[:] = saved
            generator.set_state(current)
        if self.random is not None:
            self.random.set(state["global"])


def _samplers(loader: Any) -> list[Any]:
    batches = getattr(loader, "batch_sampler", None)
    found = [getattr(loader, "sampler", None), getattr(batches, "sampler", None)]
    return [sampler for sampler in found if sampler is not None]


def _generators(loader: Any) -> list[Any]:
    """Return the generators of a loader and of its samplers, each once."""
    found = [getattr(part, "generator", None) for part in (loader, *_samplers(loader))]
    return [*{id(generator): generator for generator in found if generator is not None}.values()]


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
