"""One captured loss: its graph, the tensors that it takes, and what must not change."""

from __future__ import annotations

import functools
import random
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.poutine.runtime import apply_stack
from torch.distributions import constraints, transform_to
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from moment_calculus.predictions import Moments
from pyro_moments import _host
from pyro_moments.compiled.compilers import Backend
from pyro_moments.compiled.read_state import ReadState
from pyro_moments.evaluation.precision import full_precision

Loss = Callable[..., Any]


class Uncapturable(Exception):
    """Why a program cannot be captured."""


class Results(NamedTuple):
    """The loss, the gradients of inputs in use, and values of constrained parameters."""

    loss: torch.Tensor
    gradients: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]


class Program:
    """The captured loss of one model and guide for one signature of arguments."""

    def __init__(
        self, eager: Loss, model: Any, guide: Any, args: tuple, kwargs: dict, compiler: Backend
    ) -> None:
        sites = run_eagerly(lambda: eager(model, guide, *args, **kwargs))
        self.read_state = ReadState((model, guide), tuple(sites))
        # The same tensor may be an argument and be read elsewhere: aliases tell the two
        # apart.
        tensors: list[torch.Tensor] = []
        args, kwargs = _aliased((args, kwargs), tensors)
        loss = functools.partial(eager, model, guide, *args, **kwargs)
        read_tensors = outside_tensors(loss, tensors)
        examples = [*tensors, *read_tensors]
        versions = [_host.changes_in_place(tensor) for tensor in examples]
        graph, self.used, self.constrained = loss_and_gradients_graph(
            loss, examples, _wanted(examples)
        )
        if versions != [_host.changes_in_place(tensor) for tensor in examples]:
            raise Uncapturable("it changes a tensor in place")
        changed = self.read_state.ignore_library_changes()
        if changed is not None:
            raise Uncapturable(f"it changes '{changed}' whenever it runs")
        self.parameters = [_ParameterSite(name, site) for name, site in sites.items()]
        self.outside_locations = self._locations(read_tensors)
        self._keep = model, guide  # keeps their ids, which serve as keys
        self.run = compiler(graph, examples)
        self.aliased_results = self._aliased_results(examples)

    def _locations(self, read_tensors: Sequence[torch.Tensor]) -> list[tuple[Any, Any, tuple]]:
        """Return container, key and metadata of every outside tensor."""
        parameters = {id(parameter.unconstrained) for parameter in self.parameters}
        locations = []
        for tensor in read_tensors:
            slot = self.read_state.location_of(tensor, pinned=id(tensor) in parameters)
            locations.append((*slot, metadata_of(tensor)))
        return locations

    def _aliased_results(self, examples: Sequence[torch.Tensor]) -> frozenset[int]:
        """Return the indices of results that share memory with another or an input."""
        results = self._results([tensor.detach() for tensor in examples])
        memory = {tensor.untyped_storage().data_ptr() for tensor in examples}
        aliased = set()
        for index, result in enumerate(results):
            pointer = result.untyped_storage().data_ptr()
            if pointer in memory:
                aliased.add(index)
            memory.add(pointer)
        return frozenset(aliased)

    def inputs(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """Return all tensors that the program takes; None if another program is needed."""
        inputs = list(arguments)
        try:
            for container, key, metadata in self.outside_locations:
                tensor = container[key]
                if metadata_of(tensor) != metadata:
                    return None
                inputs.append(tensor)
        except (LookupError, ValueError, AttributeError):
            return None
        return inputs if self.read_state.unchanged() else None

    # measured: ×1.26 of a compiled step of a 1-50-2 network, torch 2.13
    def takes_plain_leaves(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return whether gradients may be written to the inputs without autograd."""
        used = [inputs[index] for index in self.used]
        return all(tensor.is_leaf and not _host.has_hooks(tensor) for tensor in used)

    def show_parameters(self, values: Sequence[torch.Tensor] = ()) -> None:
        """Show the parameters to Pyro's handlers, as the eager program does."""
        if _host.handlers():
            # Constrained values that are not given are computed, for autograd.
            by_name = dict(zip(self.constrained, values, strict=False))
            for parameter in self.parameters:
                parameter(by_name.get(parameter.name))

    @torch.no_grad()
    def _results(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with full_precision():  # the graph has the casts of autocast already
            return list(self.run(*inputs))

    def __call__(self, inputs: Sequence[torch.Tensor]) -> Results:
        """Return the results, none of which share memory."""
        results = self._results(inputs)
        for index in self.aliased_results:
            results[index] = results[index].clone()
        values = 1 + len(self.used)
        return Results(results[0], results[1:values], results[values:])


class Differentiable(torch.autograd.Function):
    """Autograd function of a program's loss."""

    @staticmethod
    def forward(ctx: Any, program: Program, *inputs: torch.Tensor) -> torch.Tensor:
        """Run the program and keep the gradients."""
        loss, gradients, _ = program(inputs)
        ctx.used, ctx.count = program.used, len(inputs)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Scale the gradients."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a compiled loss can be differentiated once; leave compiled=True out for "
                "create_graph=True"
            )
        results: list[torch.Tensor | None] = [None] * ctx.count
        for index, slope in zip(ctx.used, ctx.saved_tensors, strict=True):
            results[index] = gradient * slope
        return None, *results


class _ParameterSite:
    """Shows one parameter, with its current value, as a site to the handlers."""

    def __init__(self, name: str, site: Any) -> None:
        self.name = name
        value = site["value"]
        self.unconstrained = value.unconstrained() if hasattr(value, "unconstrained") else value
        options = {k: v for k, v in site["kwargs"].items() if k in ("constraint", "event_dim")}
        self.transform = transform_to(options.get("constraint", constraints.real))
        self.message = {
            "type": "param",
            "name": name,
            "fn": self._value,
            "is_observed": False,
            "args": (name,),
            "kwargs": options,
            "scale": 1.0,
            "mask": None,
            "cond_indep_stack": (),
            "done": True,
            "stop": False,
            "continuation": None,
        }

    def _value(self, *_: Any, **__: Any) -> torch.Tensor:
        return self._as_pyro_makes_it(self.transform(self.unconstrained))

    def _as_pyro_makes_it(self, value: Any) -> torch.Tensor:
        value.unconstrained = weakref.ref(self.unconstrained)
        return value

    def __call__(self, value: torch.Tensor | None = None) -> None:
        value = self._value() if value is None else self._as_pyro_makes_it(value)
        message: Any = {**self.message, "value": value, "infer": {}}
        apply_stack(message)


def metadata_of(tensor: torch.Tensor) -> tuple:
    """Return what a program depends on in a tensor besides its values."""
    return (
        type(tensor),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
    )


def _wanted(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the indices of tensors that take part in differentiation."""
    if not torch.is_grad_enabled():
        return []
    return [index for index, tensor in enumerate(tensors) if tensor.requires_grad]


def _aliased(argument: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the same argument with new tensor objects, which appear nowhere else."""
    if isinstance(argument, torch.Tensor):
        alias = argument.detach().requires_grad_(argument.requires_grad)
        tensors.append(alias)
        return alias
    if isinstance(argument, Moments):
        return _host.tree_map(lambda part: _aliased(part, tensors), argument)
    if isinstance(argument, tuple | list):
        items = [_aliased(item, tensors) for item in argument]
        return type(argument)(*items) if hasattr(argument, "_fields") else type(argument)(items)
    if isinstance(argument, dict):
        return {key: _aliased(item, tensors) for key, item in argument.items()}
    return argument


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


class _ValueReads(_host.DispatchMode):
    """Notes tensors whose values Python code asks for: a graph does not show them."""

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
    """Passes the checks of distributions that validate by themselves."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return True if func is _host.is_all_true else func(*args, **(kwargs or {}))


def _is_literal(node: Node) -> bool:
    """Return whether a constant of the graph is made by ``torch.tensor`` from numbers."""
    return all(user.target is torch.ops.aten.lift_fresh_copy.default for user in node.users)


class LossAndGradients(NamedTuple):
    """A loss with its gradients as one graph."""

    graph: GraphModule  # from the inputs to [loss, *gradients, *constrained values]
    used: tuple[int, ...]  # indices of the inputs that have a gradient
    constrained: tuple[str, ...]  # names of parameters whose value is not the parameter itself


def loss_and_gradients_graph(
    loss: Callable[[], Any], inputs: Sequence[torch.Tensor], differentiable: Sequence[int]
) -> LossAndGradients:
    """Return the graph of the loss and of its gradients by ``differentiable`` inputs."""
    used: list[int] = []
    constrained: dict[str, torch.Tensor] = {}

    def loss_and_gradients(*_: torch.Tensor) -> list[torch.Tensor]:
        with poutine.trace(param_only=True) as parameters:
            total = loss()
        constrained.update(_constrained(parameters.trace.nodes))
        values = [value.detach() for value in constrained.values()]
        if not differentiable or not total.requires_grad:
            return [total.detach(), *values]
        chosen = [inputs[index] for index in differentiable]
        with full_precision():
            gradients = torch.autograd.grad(total, chosen, allow_unused=True)
        pairs = [(i, g) for i, g in zip(differentiable, gradients, strict=True) if g is not None]
        used.extend(index for index, _ in pairs)
        return [total.detach(), *(gradient.contiguous() for _, gradient in pairs), *values]

    return LossAndGradients(
        _trace_graph(loss_and_gradients, inputs), tuple(used), tuple(constrained)
    )


def _constrained(sites: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return by name the values of parameters that differ from the parameters."""
    values = {name: site["value"] for name, site in sites.items()}
    return {
        name: value
        for name, value in values.items()
        if hasattr(value, "unconstrained") and value.unconstrained() is not value
    }


def _trace_graph(function: Callable, inputs: Sequence[torch.Tensor]) -> GraphModule:
    # Without a shared mode the tracer makes one for every tensor, in half of the
    # capture's time.
    shared = _host.shared_fake_tensors(allow_fallback_kernels=True)
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
