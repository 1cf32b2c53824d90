"""Capture the loss of a Pyro program, gradients included, as one graph of tensor operations."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyro
import torch
from pyro import poutine
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pyro_moments.evaluation.precision import full_precision


class Uncapturable(Exception):
    """Why a program cannot be captured."""


def run_eagerly(loss: Callable[[], Any]) -> dict[str, Any]:
    """Run a program once with Pyro's validation, and return its parameter sites by name.

    This also makes lazy parameters. It raises Uncapturable if the program draws random
    numbers that the graph would not draw again.
    """
    before = _foreign_random_state()
    with poutine.block(), poutine.trace(param_only=True) as parameters:
        loss()
    if _foreign_random_state() != before:
        raise Uncapturable("it draws random numbers from NumPy or from the module random")
    return dict(parameters.trace.nodes)


def _foreign_random_state() -> tuple:
    of_numpy: Any = np.random.get_state()  # noqa: NPY002  (the user's code may use it)
    return random.getstate(), of_numpy[1].tobytes(), *of_numpy[2:]


def outside_tensors(
    loss: Callable[[], Any], arguments: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return the tensors that a program reads and neither makes nor gets as arguments."""
    value_reads = _ValueReads()

    def observed(*_: torch.Tensor) -> Any:
        with _WithoutNumPy(), value_reads:
            return loss()

    # The program reads these very arguments: other tensors appear as constants of the
    # graph.
    graph = _trace_graph(observed, arguments)
    nodes = [node for node in graph.graph.nodes if node.op == "get_attr" and not _is_literal(node)]
    tensors = [*value_reads.tensors, *(getattr(graph, str(node.target)) for node in nodes)]
    return list({id(tensor): tensor for tensor in tensors}.values())


class _ValueReads(TorchDispatchMode):
    """Notes tensors whose values Python code asks for, because they do not appear in a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output in func.tags:
            self.tensors += [argument for argument in args if isinstance(argument, torch.Tensor)]
        return func(*args, **(kwargs or {}))


class _WithoutNumPy(TorchFunctionMode):
    """Raises when a tensor becomes a NumPy array, whose operations no graph would see."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise Uncapturable("it turns a tensor into a NumPy array")
        return func(*args, **(kwargs or {}))


class _Valid(TorchFunctionMode):
    """Passes the checks of distributions that validate by themselves, such as earlier ones."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return True if func is torch._is_all_true else func(*args, **(kwargs or {}))


def _is_literal(node: Node) -> bool:
    """Return whether a constant of the graph is made by ``torch.tensor`` from numbers."""
    return all(user.target is torch.ops.aten.lift_fresh_copy.default for user in node.users)


class LossAndGradients(NamedTuple):
    """A loss with its gradients as one graph."""

    graph: GraphModule  # from the inputs to [loss, *gradients, *constrained values]
    used: tuple[int, ...]  # places of the inputs that have a gradient
    constrained: tuple[str, ...]  # names of parameters whose value is not the parameter itself


def loss_and_gradients_graph(
    loss: Callable[[], Any], inputs: Sequence[torch.Tensor], differentiable: Sequence[int]
) -> LossAndGradients:
    """Return the graph of the loss and of its gradients by the ``differentiable`` inputs."""
    used: list[int] = []
    constrained: dict[str, torch.Tensor] = {}

    def loss_and_gradients(*_: torch.Tensor) -> list[torch.Tensor]:
        with poutine.trace(param_only=True) as parameters:
            total = loss()
        constrained.update(_constrained(parameters.trace.nodes))
        values = [value.detach() for value in constrained.values()]
        if not differentiable or not total.requires_grad:
            return [total.detach(), *values]
        chosen = [inputs[place] for place in differentiable]
        with full_precision():
            gradients = torch.autograd.grad(total, chosen, allow_unused=True)
        pairs = [(i, g) for i, g in zip(differentiable, gradients, strict=True) if g is not None]
        used.extend(place for place, _ in pairs)
        return [total.detach(), *(gradient.contiguous() for _, gradient in pairs), *values]

    return LossAndGradients(
        _trace_graph(loss_and_gradients, inputs), tuple(used), tuple(constrained)
    )


def _constrained(sites: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return by name the values of parameters that differ from the parameters themselves."""
    values = {name: site["value"] for name, site in sites.items()}
    return {
        name: value
        for name, value in values.items()
        if hasattr(value, "unconstrained") and value.unconstrained() is not value
    }


def _trace_graph(function: Callable, inputs: Sequence[torch.Tensor]) -> GraphModule:
    # Without a shared mode the tracer makes one for every tensor, in half of the
    # capture's time.
    shared = tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True)))
    try:
        with pyro.validation_enabled(False), _Valid(), poutine.block(), shared:
            return make_fx(function)(*inputs)
    except Uncapturable:
        raise
    except Exception as error:  # anything that the tracer meets in the user's program
        raise Uncapturable(_reason(error)) from error


def _reason(error: Exception) -> str:
    headline = str(error).strip().partition("\n")[0]
    if "value out of a tracing tensor" in headline:
        return "its Python code depends on the values of tensors"
    return f"{type(error).__name__}: {headline}"
