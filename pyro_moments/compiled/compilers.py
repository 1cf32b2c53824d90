"""Backends that make a captured program fast: a compiler, or a replay where none works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from pyro_moments.compiled.small_products import products_of, with_sums

Backend = Callable[[GraphModule, Sequence[torch.Tensor]], Callable[..., Any]]


def replay(graph: GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Return the graph itself, which runs its operations one by one without a compiler."""
    return graph


def inductor(graph: GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Compile a graph to machine code that draws the random numbers of the eager program."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.virtualized import V

    # Without a ShapeEnv nothing is cached, although no shape is symbolic.
    fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    graph = with_sums(graph)
    context = tracing(TracingContext(fake))
    with torch.no_grad(), config.patch(_options(graph)), context, V.set_fake_mode(fake):
        examples: list[Any] = [
            fake.from_tensor(tensor.detach(), static_shapes=True) for tensor in inputs
        ]
        compiled: Any = compile_fx_inner(_lowered(graph, examples), examples, is_inference=True)
    run = compiled.current_callable  # without the calls for a profiler
    return lambda *tensors: run(list(tensors))


def _lowered(graph: GraphModule, examples: Sequence[torch.Tensor]) -> GraphModule:
    """Return the same program in operations that the compiler knows, none of them in place.

    ``torch.compile`` would also trace and wrap for autograd and mutated inputs: there are
    none.
    """
    from torch._inductor.decomposition import select_decomp_table

    pure = torch.func.functionalize(graph)
    lowered = make_fx(pure, decomposition_table=select_decomp_table())(*examples)
    lowered.graph.eliminate_dead_code()
    (output,) = lowered.graph.find_nodes(op="output")
    output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))  # keep strides
    return lowered


def _options(graph: GraphModule) -> dict[str, Any]:
    """Return options for this compilation, by their names in ``torch._inductor.config``."""
    from torch._inductor import config

    from pyro_moments.compiled.chains import UnfusedChains

    # The compiler asks for the processor's vector instructions anyway; a trial takes
    # seconds.
    vec_isa_ok = True if config.cpp.vec_isa_ok is None else config.cpp.vec_isa_ok
    options: dict[str, Any] = {
        "fallback_random": True,
        "cpp.vec_isa_ok": vec_isa_ok,
        "_pre_fusion_custom_pass": UnfusedChains(),
        # most patterns fuse a sum with a matrix product, and copy the other term first
        "pattern_matcher": False,
        # a program checks the metadata of all its inputs itself
        "size_asserts": False,
    }
    if not any(True for _ in products_of(graph)):  # one file: no other shares its headers
        options["cpp_cache_precompile_headers"] = False
    return options
