"""The private APIs of torch and Pyro that the front end uses; each names the version checked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from pyro.poutine.runtime import _PYRO_STACK
from torch.fx import GraphModule
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

DispatchMode = TorchDispatchMode  # base class of modes that see every operation (torch 2.13)

# The function by which distributions validate their parameters (torch 2.13).
is_all_true: Callable[[torch.Tensor], torch.Tensor] = torch._is_all_true

# Module and function in which ``torch.vmap`` calls the mapped function (torch 2.13).
VMAP_FRAME = ("torch._functorch.vmap", "_flat_vmap")


def handlers() -> Sequence[Any]:
    """Return the active handlers of Pyro, the outermost first (Pyro 1.9.2)."""
    return _PYRO_STACK


def unconstrained_parameter(name: str) -> torch.Tensor:
    """Return a parameter of Pyro's store before its transform (Pyro 1.9.2)."""
    import pyro

    return pyro.get_param_store()._params[name]


# Makes a tensor without storage of a class, shape, dtype and device (torch 2.13).
make_shell: Callable[..., Any] = torch.Tensor._make_wrapper_subclass


def call_plainly(func: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """Call a function of torch without ``__torch_function__`` of classes (torch 2.13)."""
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def changes_in_place(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place (torch 2.13)."""
    return tensor._version


def has_hooks(tensor: torch.Tensor) -> bool:
    """Return whether a tensor calls functions when its gradient is computed (torch 2.13)."""
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


def vmap_forbids_randomness() -> bool:
    """Return whether the innermost transform is a vmap without random numbers (torch 2.13)."""
    functorch = torch._C._functorch
    inner = functorch.peek_interpreter_stack()
    if inner is None or inner.key() != functorch.TransformType.Vmap:
        return False
    randomness = functorch.CVmapInterpreterPtr(inner).randomness()
    return randomness == functorch.RandomnessType.Error


def tree_map(function: Callable, tree: Any, *others: Any) -> Any:
    """Apply a function to the leaves of nested containers (torch 2.13)."""
    return _pytree.tree_map(function, tree, *others)


def tree_leaves(tree: Any) -> list[Any]:
    """Return the leaves of nested containers (torch 2.13)."""
    return _pytree.tree_leaves(tree)


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """Return the leaves of nested containers, and their structure (torch 2.13)."""
    return _pytree.tree_flatten(tree, is_leaf)


def register_container(kind: type, parts: Callable, of_parts: Callable) -> None:
    """Register a class as a container: its parts and context, and its making (torch 2.13)."""
    _pytree.register_pytree_node(kind, parts, of_parts)


def tree_unflatten(leaves: Sequence[Any], structure: Any) -> Any:
    """Return nested containers with these leaves (torch 2.13)."""
    return _pytree.tree_unflatten(leaves, structure)


@contextlib.contextmanager
def shared_fake_tensors(**options: Any) -> Iterator[Any]:
    """Let tracers share one mode of tensors without elements, and yield it (torch 2.13)."""
    from torch._guards import TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(**options)
    with tracing(TracingContext(mode)):
        yield mode


def compile_graph(
    graph: GraphModule, inputs: Sequence[torch.Tensor], options: Mapping[str, Any]
) -> Callable[[list], Any]:
    """Compile a graph to a function of a list of tensors, without autograd (torch 2.13)."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.virtualized import V
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # The compiler asks for the processor's vector instructions anyway; a trial takes seconds.
    instructions = getattr(config, "cpp.vec_isa_ok", None)
    options = {"cpp.vec_isa_ok": True if instructions is None else instructions, **options}
    # An unknown option ends the compilation, and versions differ: each only makes it faster.
    patched = config.patch({name: each for name, each in options.items() if hasattr(config, name)})
    # Without a ShapeEnv nothing is cached, although no shape is symbolic.
    shared = shared_fake_tensors(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    with torch.no_grad(), patched, shared as fake, V.set_fake_mode(fake):
        examples = [fake.from_tensor(tensor.detach(), static_shapes=True) for tensor in inputs]
        compiled: Any = compile_fx_inner(_lowered(graph, examples), examples, is_inference=True)
    return compiled.current_callable  # without the calls for a profiler


def _lowered(graph: GraphModule, examples: Sequence[torch.Tensor]) -> GraphModule:
    """Return the same program in operations of the compiler, none of them in place."""
    # ``torch.compile`` would also trace and wrap for autograd and mutated inputs: none here.
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    pure = torch.func.functionalize(graph)
    lowered = make_fx(pure, decomposition_table=select_decomp_table())(*examples)
    lowered.graph.eliminate_dead_code()
    (output,) = lowered.graph.find_nodes(op="output")
    output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))  # keep strides
    return lowered
