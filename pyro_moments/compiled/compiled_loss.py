"""Compiled objectives: the Pyro program as one graph for each signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from pyro.poutine.block_messenger import BlockMessenger
from pyro.poutine.trace_messenger import TraceMessenger

from moment_calculus import CaptureWarning, warn_user
from moment_calculus.predictions import Moments
from moment_inference.optimisation import compilation
from pyro_moments._host import handlers, tree_leaves
from pyro_moments.compiled.compilers import Backend, inductor, replay
from pyro_moments.compiled.program import (
    Differentiable,
    Loss,
    Program,
    Uncapturable,
    metadata_of,
)
from pyro_moments.compiled.read_state import PLAIN
from pyro_moments.evaluation.precision import full_precision, is_autocast_on

DEVIATION = 1e-2  # relative error allowed; compilers have got gradients wrong
LIMIT = 8  # most programs of a model and a guide, as many as torch.compile makes of one function
REMEMBERED = 256  # most signatures that cannot be captured
KEPT = 32  # most models and guides whose programs are kept, such as of a fit after another one


class CompiledLoss:
    """A loss that is compiled at the first call of each signature."""

    def __init__(
        self, eager: Loss, settings: Callable[[], tuple], backend: Backend = inductor
    ) -> None:
        # The eager loss is Pyro's; settings returns the options on which it depends.
        self.eager, self.settings, self.backend = eager, settings, backend
        self.programs: dict[Any, list[Program]] = {}
        self.failed: dict[Any, tuple] = {}  # holds model and guide to keep their ids
        self.warned = False

    def __getstate__(self) -> dict:
        """Return the state without programs, which a copy makes again on first use."""
        return self.__dict__ | {"programs": {}, "failed": {}}

    def differentiable(self, model: Any, guide: Any, args: tuple, kwargs: dict) -> Any:
        """Return the loss as a tensor that can be differentiated once."""
        program, inputs = self._program(model, guide, args, kwargs)
        if program is None:
            return self.eager(model, guide, *args, **kwargs)
        program.show_parameters()
        if not program.used or not torch.is_grad_enabled():
            return program(inputs).loss
        return Differentiable.apply(program, *inputs)

    def with_gradients(self, model: Any, guide: Any, args: tuple, kwargs: dict) -> Any:
        """Add gradients to the parameters; return the loss, None if it is to be eager."""
        program, inputs = self._program(model, guide, args, kwargs)
        if program is None:
            return None
        if not program.takes_plain_leaves(inputs):
            program.show_parameters()
            loss = Differentiable.apply(program, *inputs)
            loss.backward()
            return loss
        loss, gradients, values = program(inputs)
        program.show_parameters(values)
        for index, gradient in zip(program.used, gradients, strict=True):
            parameter = inputs[index]
            total = gradient if parameter.grad is None else parameter.grad + gradient
            parameter.grad = total
        return loss

    def _program(
        self, model: Any, guide: Any, args: tuple, kwargs: dict
    ) -> tuple[Program | None, list[torch.Tensor]]:
        """Return the program and its tensors; None if the loss is to be eager."""
        tensors: list[torch.Tensor] = []
        try:
            _check_handlers()
            signature = _signature((args, kwargs), tensors)
            key = (id(model), id(guide), self.settings(), signature, *_global_settings())
            if key in self.failed:
                return None, []
            capture = self._captured(key, tensors)
            if capture is not None:
                return capture
            with compilation():
                return self._capture(key, tensors, model, guide, args, kwargs)
        except Uncapturable as reason:
            self._warn(f"the loss is evaluated eagerly, as without compiled=True: {reason}")
            return None, []

    def _captured(
        self, key: tuple, tensors: list[torch.Tensor]
    ) -> tuple[Program, list[torch.Tensor]] | None:
        """Return a program and its tensors; one with gradients also serves without them."""
        for known in dict.fromkeys((key, (*key[:-1], True))):
            for program in self.programs.get(known, ()):
                inputs = program.inputs(tensors)
                if inputs is not None:
                    return program, inputs
        return None

    def _capture(
        self,
        key: Any,
        tensors: list[torch.Tensor],
        model: Any,
        guide: Any,
        args: tuple,
        kwargs: dict,
    ) -> tuple[Program, list[torch.Tensor]]:
        try:
            self._make_room(key[:2])
            program = Program(self.eager, model, guide, args, kwargs, self._compile)
            inputs = program.inputs(tensors)
            if inputs is None:
                raise Uncapturable("what it reads besides its arguments does not stay as it was")
        except Uncapturable:
            self.failed[key] = (model, guide)
            for oldest in [*self.failed][:-REMEMBERED]:
                del self.failed[oldest]
            raise
        self.programs.setdefault(key, []).append(program)
        return program, inputs

    def _make_room(self, pair: tuple[int, int]) -> None:
        """Raise if a model and a guide have their programs; forget those of the oldest others."""
        counts: dict[tuple[int, int], int] = {}
        for key, programs in self.programs.items():
            counts[key[:2]] = counts.get(key[:2], 0) + len(programs)
        if counts.get(pair, 0) >= LIMIT:
            raise Uncapturable(
                f"{LIMIT} programs were captured already; pass as a tensor what differs "
                "between calls (numbers, attributes, shapes)"
            )
        kept = [*(other for other in counts if other != pair), pair][-KEPT:]
        self.programs = {key: found for key, found in self.programs.items() if key[:2] in kept}

    def _compile(self, graph: Any, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        """Compile and try a graph; replay its operations if no compiler works."""
        try:
            run = self.backend(graph, inputs)
            _compare(run, graph, inputs)
        except Exception as error:  # a compiler may raise anything
            headline = str(error).strip().partition("\n")[0]
            self._warn(
                "the captured loss is not compiled, its operations are replayed one by one: "
                f"{type(error).__name__}: {headline}"
            )
            return replay(graph, inputs)
        return run

    def _warn(self, message: str) -> None:
        if not self.warned:
            self.warned = True
            warn_user(message, CaptureWarning)


@torch.no_grad()
def _compare(run: Callable[..., Any], graph: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Compare a compiled graph with the graph itself, with the same random numbers."""
    examples = [tensor.detach() for tensor in inputs]
    devices = {tensor.device.index for tensor in examples if tensor.is_cuda}
    with full_precision(), torch.random.fork_rng(devices):
        torch.manual_seed(0)
        results = run(*examples)
        torch.manual_seed(0)
        expected = graph(*examples)
    for index, (result, right) in enumerate(zip(results, expected, strict=True)):
        if not result.numel():
            continue
        error, size = (result - right).abs().max(), right.abs().max()
        if error > DEVIATION * size:
            raise ArithmeticError(f"result {index} is off by {float(error / size):.0e}")


def _check_handlers() -> None:
    """Raise Uncapturable inside handlers: a captured program does not call them."""
    for handler in handlers():
        if not isinstance(handler, TraceMessenger | BlockMessenger):
            raise Uncapturable(f"it is evaluated inside a {type(handler).__name__}")


def _global_settings() -> tuple:
    """Return the global settings of torch on which a program depends, gradients last."""
    return (
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        is_autocast_on() and _autocast(),
        torch.is_grad_enabled(),
    )


def _autocast() -> tuple:
    devices = "cpu", "cuda"
    return tuple(torch.is_autocast_enabled(d) and torch.get_autocast_dtype(d) for d in devices)


def _signature(argument: Any, tensors: list[torch.Tensor]) -> Any:
    """Return what a program depends on in an argument, and append its tensors."""
    if isinstance(argument, torch.Tensor):
        if type(argument) not in (torch.Tensor, torch.nn.Parameter):
            raise Uncapturable(f"an argument is a {type(argument).__name__}")
        tensors.append(argument)
        return metadata_of(argument)
    if isinstance(argument, Moments):
        return Moments, _signature(tree_leaves(argument), tensors), argument.covariance is None
    if isinstance(argument, tuple | list):
        return type(argument), *(_signature(item, tensors) for item in argument)
    if isinstance(argument, dict):
        return dict, *((key, _signature(item, tensors)) for key, item in argument.items())
    if isinstance(argument, PLAIN):
        return type(argument), argument
    raise Uncapturable(f"an argument is a {type(argument).__name__}; pass tensors")
