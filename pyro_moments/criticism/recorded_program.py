"""Record a program's calls of torch functions, and run it again with draws."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from moment_calculus.values import Propagation
from moment_guides.families import mean_field
from moment_inference.criticism import RecordedOperation, other_path
from pyro_moments._host import call_plainly, tree_leaves, tree_map
from pyro_moments.evaluation.tensor import (
    METADATA,
    OBSERVER,
    MomentTensor,
    Shell,
    name_of,
    user_line,
)
from pyro_moments.rules.elementwise.dropout import DRAWING_RULES
from pyro_moments.rules.table import IN_PLACE
from pyro_moments.sites.messenger import LatentSlice, LatentVector, MomentMessenger


class Call(NamedTuple):
    """One call of a torch function on random tensors."""

    function: Callable
    line: str  # the user's
    values: tuple[Any, ...]  # of each result; None if it is certain


class Recorder:
    """Records the calls of a program."""

    def __init__(self, caller: str) -> None:
        self.caller = caller  # line that runs the program, which is not part of it
        self.calls: list[Call] = []
        self._mark = 0

    def start_model(self) -> None:
        """Mark the beginning of the model."""
        self._mark = len(self.calls)

    def restart_model(self) -> None:
        """Delete the calls of the model, because it runs again."""
        del self.calls[self._mark :]

    def __call__(self, function: Callable, result: Any) -> None:
        """Record a call."""
        line = user_line()
        line = "" if line.startswith(self.caller) else line
        self.calls.append(Call(function, line, tuple(map(value_of, results_of(result)))))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs in this context."""
        token = OBSERVER.set(self)
        try:
            yield
        finally:
            OBSERVER.reset(token)

    def records(self) -> list[RecordedOperation]:
        """Return the records, one for each result."""
        return [
            RecordedOperation(short_name(call.function), call.line, value)
            for call in self.calls
            for value in call.values
        ]


def results_of(result: Any) -> tuple[Any, ...]:
    """Return the results of a call as a tuple."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def value_of(tensor: Any) -> Any:
    """Return the value of a random tensor; None for others."""
    return tensor.value if isinstance(tensor, MomentTensor) else None


def short_name(function: Callable) -> str:
    """Return the name of a torch function without modules and underscores."""
    raw = name_of(function).rpartition(".")[2]
    name = raw.strip("_")
    turned = raw.startswith("__") and name[0] in "ri"  # __radd__ and __iadd__
    return name[1:] if turned and hasattr(torch.Tensor, f"__{name[1:]}__") else name


class Replay:
    """One run that follows the recorded calls."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls, self.index = calls, 0
        self.results: list[Any] = []  # one for each recorded result

    def draw(self, tensor: torch.Tensor) -> FollowedDraw:
        """Return a draw whose uses are followed."""
        return FollowedDraw(tensor, replay=self)

    def is_next(self, function: Callable) -> bool:
        """Return whether the next recorded call is of this function."""
        return self.index < len(self.calls) and self.calls[self.index].function is function

    def call(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Call a function on draws; raise UnsupportedMoments if it is not the recorded one."""
        if not self.is_next(function):
            expected = self.calls[self.index].function if self.index < len(self.calls) else None
            name = "nothing more" if expected is None else short_name(expected)
            raise other_path(name, short_name(function), user_line())
        values = self.calls[self.index].values
        self.index += 1
        in_place = function in IN_PLACE or bool(kwargs.get("inplace"))
        plain = _plain(args)
        if in_place:  # keeps earlier results of the argument unchanged
            plain = (plain[0].clone(), *plain[1:])
        result = function(*plain, **_plain(kwargs))
        self._add_results(function, results_of(result), values)
        if in_place:
            args[0].tensor = result
            return args[0]
        return self._wrapped(result, values)

    def _add_results(
        self, function: Callable, result: tuple[Any, ...], values: tuple[Any, ...]
    ) -> None:
        shapes = [None if v is None else tuple(v.shape) for v in values]
        ours = [
            None if shape is None else tuple(part.shape)
            for shape, part in zip(shapes, result, strict=False)
        ]
        if shapes != ours:
            name = short_name(function)
            raise other_path(f"{name} with results {shapes}", f"{name} with {ours}", user_line())
        self.results += result

    def _wrapped(self, result: Any, values: tuple[Any, ...]) -> Any:
        """Return results, those that are random with moments as ``FollowedDraw``."""
        pairs = zip(results_of(result), values, strict=True)
        wrapped = [part if value is None else self.draw(part) for part, value in pairs]
        if not isinstance(result, tuple | list):
            return wrapped[0]
        return tuple(wrapped) if isinstance(result, tuple) else wrapped


def _plain(argument: Any) -> Any:
    """Replace draws in an argument by their tensors."""
    return tree_map(lambda part: part.tensor if isinstance(part, FollowedDraw) else part, argument)


class FollowedDraw(Shell):
    """Tensor-like shell of a draw where the recorded program has a random tensor."""

    replay: Replay

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Follow the call."""
        kwargs = kwargs or {}
        if func in METADATA:
            return call_plainly(func, args, kwargs)
        return _first((*args, *kwargs.values())).replay.call(func, args, kwargs)

    def __iter__(self):
        """Iterate over the slices of the leading axis, as random tensors do."""
        return iter([self.replay.draw(part) for part in self.tensor.unbind()])


def _first(argument: Any) -> Any:
    """Return the first draw in an argument; None if there is none."""
    return next((part for part in tree_leaves(argument) if isinstance(part, FollowedDraw)), None)


class ReplayMessenger(MomentMessenger):
    """Gives latent sites draws where the recorded program has moments."""

    def __init__(self, replay: Replay, propagation: Propagation, guide: Any) -> None:
        super().__init__(propagation, guide=guide)
        self.replay = replay

    def _site_value(self, name: str, fn: Any, remedy: str = "") -> Any:
        return self.replay.draw(fn.rsample())

    def _latent_vector(self, name: str, fn: Any, slices: tuple[LatentSlice, ...]) -> Any:
        recorded = super()._latent_vector(name, fn, slices)
        if not isinstance(recorded, LatentVector):
            return recorded
        return LatentVector(fn, slices, self._draw_slice)

    def _draw_slice(
        self, site_slice: LatentSlice, loc: torch.Tensor, scale: torch.Tensor
    ) -> FollowedDraw:
        return self.replay.draw(mean_field.sample(loc, scale, torch.randn_like(loc)))


class Dropout(TorchFunctionMode):
    """Follows recorded calls of dropout with certain tensors."""

    def __init__(self, replay: Replay) -> None:
        super().__init__()
        self.replay = replay

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function, and follow it if it is a recorded dropout."""
        kwargs = kwargs or {}
        certain = _first((*args, *kwargs.values())) is None
        if func in DRAWING_RULES and certain and self.replay.is_next(func):
            return self.replay.call(func, args, kwargs)
        return func(*args, **kwargs)
