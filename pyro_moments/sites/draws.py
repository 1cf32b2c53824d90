"""Random numbers that a model draws besides its sites: the ELBO would be random in silence."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode

from moment_calculus.hosts.wording import drawn_in_silence
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.refusals.notices import called_by
from pyro_moments.evaluation.tensor import OBSERVER, MomentTensor, name_of, random_in_place, wrap
from pyro_moments.evaluation.user_line import user_line
from pyro_moments.rules.elementwise.dropout import SERVED

State = list[torch.Tensor]


def _state() -> State:
    """State of the generators; those of CUDA only where it is in use.

    A program that is captured has run before; what looks at its tensors would see these.
    """
    if _get_current_dispatch_mode() is not None:
        return []
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


def _same(first: State, second: State) -> bool:
    return all(torch.equal(one, two) for one, two in zip(first, second, strict=False))


class Draws:
    """Whether the generators move other than for sites and the initial values of parameters.

    Most programs draw nothing: states are noted, and compared where the last is not the first.
    Nothing is noted before the start: the guide may draw.
    """

    def __init__(self) -> None:
        self.site: Any = None
        self._since: State | None = None
        self._spans: list[tuple[State, State]] = []  # in which nothing should be drawn

    def start(self) -> None:
        """Begin to watch."""
        self.site, self._spans, self._since = None, [], _state()

    def before(self, site: Any) -> None:
        """A site is drawn next.

        Args:
            site: its message.
        """
        if self._since is not None:
            self._spans.append((self._since, _state()))
            self.site = site

    def after(self) -> None:
        """A site was drawn, or a parameter made."""
        if self._since is not None:
            self.site, self._since = None, _state()

    def silent(self) -> bool:
        """Whether anything was drawn besides."""
        self.before(None)
        self._since = None
        first, last = self._spans[0][0], self._spans[-1][1]
        return not (_same(first, last) or all(_same(*span) for span in self._spans))


class _WithNoise(TorchFunctionMode):
    """Makes dropout of certain tensors random values; random ones find the rule themselves."""

    def __init__(self, propagation: Propagation) -> None:
        super().__init__()
        self.propagation = propagation

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        rule, kwargs = SERVED.get(func), kwargs or {}
        if rule is None or type(args[0] if args else kwargs.get("input")) is MomentTensor:
            return func(*args, **kwargs)
        try:
            result = rule(self.propagation, *args, **kwargs)
            if kwargs.get("inplace") and hasattr(result, "sites"):
                raise random_in_place(result.sites)
        except UnsupportedMoments as refusal:
            raise refusal.located(name_of(func), user_line()) from None
        tensor = wrap(result)
        if (observer := OBSERVER.get()) is not None:
            observer(func, tensor)
        return tensor


class _Watched(_WithNoise):
    """Refuses the first function that draws; modules may draw the values they begin with."""

    def __init__(
        self, propagation: Propagation, draws: Draws, refusal: Callable[..., Exception]
    ) -> None:
        super().__init__(propagation)
        self.draws, self.refusal = draws, refusal

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        before = _state()
        result = super().__torch_function__(func, types, args, kwargs)
        drawn = self.draws.site is None and not _same(before, _state())
        if drawn and not called_by("torch.nn.init"):
            raise self.refusal(name_of(func), user_line())
        return result


_IN_MODEL = partial(drawn_in_silence, host="Pyro")


_noisy: weakref.WeakSet = weakref.WeakSet()  # models with dropout of certain tensors


def watched(
    draws: Draws,
    program: Callable[[], Any],
    propagation: Propagation,
    of: Any,
    refusal: Callable[..., Exception] = _IN_MODEL,
) -> Any:
    """Run a program that must draw nothing but sites, and noise that has moments.

    One that draws is run once more, with dropout of certain tensors as a random value; one that
    draws still, again, to say where. In which models there is such dropout is remembered, and what
    is captured is run in this way at once: its generators do not show.

    Args:
        draws: told of the sites that are drawn.
        program: without arguments.
        propagation: how randomness flows.
        of: the model or function that it runs.
        refusal: from the function that draws and the user's line to the error.

    Returns:
        What the program returns.

    Raises:
        UnsupportedMoments: naming the function that draws and the user's line.
    """
    captured = _get_current_dispatch_mode() is not None
    if not captured and not _is_noisy(of):
        draws.start()
        result = program()
        if not draws.silent():
            return result
    draws.start()
    with _WithNoise(propagation):
        result = program()
    if draws.silent():
        draws.start()
        with _Watched(propagation, draws, refusal):
            program()
    elif not captured:
        _note(of)
    return result


def _is_noisy(of: Any) -> bool:
    try:
        return getattr(of, "__func__", of) in _noisy
    except TypeError:  # it takes no weak reference
        return False


def _note(of: Any) -> None:
    with contextlib.suppress(TypeError):
        _noisy.add(getattr(of, "__func__", of))
