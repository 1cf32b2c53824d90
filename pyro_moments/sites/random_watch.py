"""Detect random numbers that a model draws outside its sites."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.numerics import private_apis
from moment_calculus.values import Propagation
from pyro_moments.evaluation.tensor import (
    OBSERVER,
    MomentTensor,
    name_of,
    random_in_place,
    user_line,
    wrap,
)
from pyro_moments.rules.elementwise.dropout import DRAWING_RULES

State = list[torch.Tensor]


def _state() -> State:
    """Return the states of the random generators, of CUDA only where it is in use."""
    if not private_apis.is_untraced():
        return []  # the capture would see these tensors; the program has run before
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


def _same(first: State, second: State) -> bool:
    return all(torch.equal(one, two) for one, two in zip(first, second, strict=False))


class GeneratorWatch:
    """Watches whether random generators move other than for sites and initial parameters.

    Most programs draw nothing: states are noted, and compared only if the last differs
    from the first. Nothing is noted before the start, because the guide may draw.
    """

    def __init__(self) -> None:
        self.site: Any = None
        self._since: State | None = None
        self._start: State = []
        self._spans: list[tuple[State, State]] = []  # between sites: nothing should be drawn
        self._before_parameters: list[tuple[State, State]] = []  # whose values may be drawn

    def start(self) -> None:
        """Begin to watch."""
        self.site, self._spans, self._before_parameters = None, [], []
        self._start = self._since = _state()

    def site_begins(self, site: Any) -> None:
        """Note that a site is drawn next."""
        if self._since is not None:
            self._spans.append((self._since, _state()))
            self.site = site

    def site_ends(self) -> None:
        """Note that a site was drawn."""
        if self._since is not None:
            self.site, self._since = None, _state()

    def parameter_ends(self) -> None:
        """Note that a parameter was made; its initial value may be drawn anew in every run."""
        if self._since is not None:
            self._before_parameters.append((self._since, _state()))
            self._since = self._before_parameters[-1][1]

    def stop(self) -> None:
        """Stop watching."""
        self.site_begins(None)
        self._since = None

    def drew_elsewhere(self) -> bool:
        """Return whether anything was drawn that is neither a site nor comes before a parameter."""
        first, last = self._spans[0][0], self._spans[-1][1]
        return not (_same(first, last) or all(_same(*span) for span in self._spans))

    def drew(self) -> bool:
        """Return whether anything was drawn that is no site; most programs draw nothing at all."""
        if _same(self._start, self._spans[-1][1]):
            return False
        return self.drew_elsewhere() or not all(_same(*span) for span in self._before_parameters)


class _WithNoise(TorchFunctionMode):
    """Makes what is drawn for certain tensors random; random tensors find the rule themselves."""

    def __init__(self, propagation: Propagation, draws: GeneratorWatch) -> None:
        super().__init__()
        self.propagation, self.draws = propagation, draws

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        rule = DRAWING_RULES.get(func) if self.draws.site is None else None
        kwargs = kwargs or {}
        if rule is None or type(args[0] if args else kwargs.get("input")) is MomentTensor:
            return func(*args, **kwargs)
        try:
            result = rule.of_any(self.propagation, *args, **kwargs)
            if kwargs.get("inplace") and hasattr(result, "sites"):
                raise random_in_place(result.sites)
        except UnsupportedMoments as error:
            raise error.located(name_of(func), user_line()) from None
        tensor = wrap(result)
        if (observer := OBSERVER.get()) is not None:
            observer(func, tensor)
        return tensor


class _Watched(_WithNoise):
    """Raises at the first function that draws, except for initial values of modules."""

    def __init__(
        self, propagation: Propagation, draws: GeneratorWatch, refusal: Callable[..., Exception]
    ) -> None:
        super().__init__(propagation, draws)
        self.refusal = refusal

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        before = _state()
        result = super().__torch_function__(func, types, args, kwargs)
        drew = self.draws.site is None and not _same(before, _state())
        if drew and not errors.called_by("torch.nn.init"):
            raise self.refusal(name_of(func), user_line())
        return result


_IN_MODEL = partial(errors.randomness_outside_sites, framework="Pyro")


_models_with_dropout: weakref.WeakSet = (
    weakref.WeakSet()
)  # models with dropout of non-random tensors


def run_watched(
    draws: GeneratorWatch,
    program: Callable[[], Any],
    propagation: Propagation,
    program_of: Any,  # the model or function that the program runs
    refusal: Callable[..., Exception] = _IN_MODEL,  # from function and user's line
) -> Any:
    """Run a program that may draw only sites, and noise that has moments; raise if it draws more.

    A program that draws runs again, with what dropout and stochastic units draw for certain
    tensors as a random value, and, if it still draws, once more to find the line. Models that
    draw so are remembered. A captured program runs in this way at once, because its generators
    cannot be observed.
    """
    captured = not private_apis.is_untraced()
    if not captured and not _has_dropout(program_of):
        result = _run(draws, program)
        if not draws.drew():
            return result
    with _WithNoise(propagation, draws):
        result = _run(draws, program)
    if draws.drew_elsewhere():
        with _Watched(propagation, draws, refusal):
            _run(draws, program)
    elif not captured:
        _remember(program_of)
    return result


def _run(draws: GeneratorWatch, program: Callable[[], Any]) -> Any:
    draws.start()
    result = program()
    draws.stop()
    return result


def _has_dropout(program: Any) -> bool:
    try:
        return getattr(program, "__func__", program) in _models_with_dropout
    except TypeError:  # it does not support weak references
        return False


def _remember(program: Any) -> None:
    with contextlib.suppress(TypeError):
        _models_with_dropout.add(getattr(program, "__func__", program))
