"""What makes a captured program fast: a compiler, or nothing where none works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from pyro_moments.compiled.products import products_of, with_sums

Backend = Callable[[GraphModule, Sequence[torch.Tensor]], Callable[..., Any]]


def replay(graph: GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Run the operations of a graph one by one, as a backend that needs no compiler.

    Args:
        graph: a captured program.
        inputs: examples of what it is called with.
    """
    return graph


def inductor(graph: GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Compile a graph to machine code, with the random numbers of the eager program.

    Args:
        graph: a captured program.
        inputs: examples of what it is called with.
    """
    from torch import _inductor

    graph = with_sums(graph)
    with torch.no_grad():
        examples: list[Any] = [tensor.detach() for tensor in inputs]
        return _inductor.compile(graph, examples, options=_options(graph))


def _options(graph: GraphModule) -> dict[str, Any]:
    """Options of this one compilation, by their names in ``torch._inductor.config``."""
    from torch._inductor import config

    # what the processor has is asked anyway; whether the compiler knows it takes seconds to try
    known = True if config.cpp.vec_isa_ok is None else config.cpp.vec_isa_ok
    # most patterns are those of products to which something is added, which then is copied first
    options = {"fallback_random": True, "cpp.vec_isa_ok": known, "pattern_matcher": False}
    if not any(True for _ in products_of(graph)):  # all in one file: nothing shares the headers
        options["cpp_cache_precompile_headers"] = False
    return options
