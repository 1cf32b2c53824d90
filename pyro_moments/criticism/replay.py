"""Runs a program that was recorded with draws, and finds the same results in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from guides.families import mean_field
from moment_calculus.criticism.accuracy.wording import other_path
from moment_calculus.numerics.rulebook import Propagation
from pyro_moments.criticism.recorder import Called, parts, short_name
from pyro_moments.evaluation.metadata import METADATA
from pyro_moments.evaluation.tensor import define_operators
from pyro_moments.evaluation.user_line import user_line
from pyro_moments.rules.elementwise.dropout import SERVED
from pyro_moments.rules.table import IN_PLACE
from pyro_moments.sites.latent_vector import LatentVector, Part
from pyro_moments.sites.messenger import MomentMessenger


class Replay:
    """One run: it follows the calls that were recorded.

    Args:
        calls: what was recorded with moments.
    """

    def __init__(self, calls: Sequence[Called]) -> None:
        self.calls, self.place = calls, 0
        self.results: list[Any] = []  # one for each of those that were recorded

    def draw(self, tensor: torch.Tensor) -> Drawn:
        """A draw, whose uses are followed.

        Args:
            tensor: the draw.
        """
        return Drawn(tensor, self)

    def is_next(self, function: Callable) -> bool:
        """Whether a function is the one that was called next.

        Args:
            function: of torch.
        """
        return self.place < len(self.calls) and self.calls[self.place].function is function

    def call(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Call a function on draws.

        Raises:
            UnsupportedMoments: if it is not the one that was called with moments.
        """
        if not self.is_next(function):
            known = self.calls[self.place].function if self.place < len(self.calls) else None
            name = "nothing more" if known is None else short_name(known)
            raise other_path(name, short_name(function), user_line())
        values = self.calls[self.place].values
        self.place += 1
        in_place = function in IN_PLACE or bool(kwargs.get("inplace"))
        plain = _plain(args)
        if in_place:  # what was noted of the argument before stays as it is
            plain = (plain[0].clone(), *plain[1:])
        found = function(*plain, **_plain(kwargs))
        self._note(function, parts(found), values)
        if in_place:
            args[0].tensor = found
            return args[0]
        return self._wrapped(found, values)

    def _note(self, function: Callable, found: tuple[Any, ...], values: tuple[Any, ...]) -> None:
        shapes = [None if v is None else tuple(v.shape) for v in values]
        ours = [
            None if shape is None else tuple(part.shape)
            for shape, part in zip(shapes, found, strict=False)
        ]
        if shapes != ours:
            name = short_name(function)
            raise other_path(f"{name} with results {shapes}", f"{name} with {ours}", user_line())
        self.results += found

    def _wrapped(self, found: Any, values: tuple[Any, ...]) -> Any:
        """Results that are random with moments are followed."""
        pairs = zip(parts(found), values, strict=True)
        wrapped = [part if value is None else self.draw(part) for part, value in pairs]
        if not isinstance(found, tuple | list):
            return wrapped[0]
        return tuple(wrapped) if isinstance(found, tuple) else wrapped


def _plain(argument: Any) -> Any:
    if isinstance(argument, Drawn):
        return argument.tensor
    if type(argument) in (tuple, list):
        return type(argument)(map(_plain, argument))
    if type(argument) is dict:
        return {name: _plain(part) for name, part in argument.items()}
    return argument


class Drawn(torch.Tensor):
    """Tensor-like shell of a draw where the recorded program has a random tensor.

    Args:
        tensor: the draw.
        replay: the run that it is part of.
    """

    tensor: torch.Tensor
    replay: Replay

    @staticmethod
    def __new__(cls, tensor: torch.Tensor, replay: Replay) -> Drawn:
        """Make the shell: it has the shape of the draw, and no storage."""
        shell = torch.Tensor._make_wrapper_subclass(
            cls, tensor.shape, dtype=tensor.dtype, device=tensor.device
        )
        shell.tensor, shell.replay = tensor, replay
        return shell

    def __init__(self, tensor: torch.Tensor, replay: Replay) -> None:
        """Nothing is left to do: ``__new__`` made the shell."""

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Follow the call."""
        kwargs = kwargs or {}
        if func in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        return _first((*args, *kwargs.values())).replay.call(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Follow what bypassed ``__torch_function__``, which moments refuse."""
        return cls.__torch_function__(func, types, args, kwargs)

    def __iter__(self):
        """Iterate over the slices of the leading axis, as random tensors do."""
        return iter([self.replay.draw(part) for part in self.tensor.unbind()])

    __hash__ = object.__hash__


define_operators(Drawn)


def _first(argument: Any) -> Any:
    """The first draw in an argument; None if there is none."""
    if isinstance(argument, Drawn):
        return argument
    if type(argument) in (tuple, list):
        return next((found for part in argument if (found := _first(part)) is not None), None)
    return None


class ReplayMessenger(MomentMessenger):
    """Gives latent sites draws where the recorded program has moments.

    Args:
        replay: the run.
        propagation: as it was recorded.
        guide: the guide.
    """

    def __init__(self, replay: Replay, propagation: Propagation, guide: Any) -> None:
        super().__init__(propagation, guide=guide)
        self.replay = replay

    def _tensor(self, name: str, fn: Any, remedy: str = "") -> Any:
        return self.replay.draw(fn.rsample())

    def _vector(self, name: str, fn: Any, parts: tuple[Part, ...]) -> Any:
        recorded = super()._vector(name, fn, parts)
        if not isinstance(recorded, LatentVector):
            return recorded
        return LatentVector(fn, parts, self._part)

    def _part(self, part: Part, loc: torch.Tensor, scale: torch.Tensor) -> Drawn:
        return self.replay.draw(mean_field.sample(loc, scale, torch.randn_like(loc)))


class Dropout(TorchFunctionMode):
    """Follows dropout of certain tensors, where it was recorded.

    Args:
        replay: the run.
    """

    def __init__(self, replay: Replay) -> None:
        super().__init__()
        self.replay = replay

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function."""
        kwargs = kwargs or {}
        certain = _first((*args, *kwargs.values())) is None
        if func in SERVED and certain and self.replay.is_next(func):
            return self.replay.call(func, args, kwargs)
        return func(*args, **kwargs)
