"""Compile a captured program, or replay it where no compiler works.

Small matrix products become sums before, which the compiler fuses with the operations
around them. Each remaining product is a call of a library, and what lies between two
calls is compiled and run as a file of its own: a step of a small network would spend most
of its time on such calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node, Proxy, Transformer

from pyro_moments._host import compile_graph

Backend = Callable[[GraphModule, Sequence[torch.Tensor]], Callable[..., Any]]

LIMIT = 2**16  # multiplications; beyond, a library is faster
INLINED = 25  # operations of a result that is computed again for each use, half of the default
_PRODUCTS = tuple(
    getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "bmm", "baddbmm")
)
_EXACT = (torch.float32, torch.float64)


def replay(graph: GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Return the graph itself, which runs its operations one by one."""
    return graph


def inductor(graph: GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Compile a graph, which draws the random numbers of the eager program."""
    graph = with_sums(graph)
    run = compile_graph(graph, inputs, _options(graph))
    return lambda *tensors: run(list(tensors))


def _options(graph: GraphModule) -> dict[str, Any]:
    """Return options of the compiler for a graph, by their names in its configuration."""
    options: dict[str, Any] = {
        "fallback_random": True,
        # twice to four times as fast for models that write x @ w + b, compiling in half the time
        "realize_cpu_opcount_threshold": INLINED,
        # most patterns fuse a sum with a matrix product, and copy the other term first
        "pattern_matcher": False,
        # a program checks the metadata of all its inputs itself
        "size_asserts": False,
    }
    if not any(True for _ in products_of(graph)):  # one file: no other shares its headers
        options["cpp_cache_precompile_headers"] = False
    return options


def with_sums(graph: GraphModule) -> GraphModule:
    """Return the same program with sums in place of small matrix products."""
    return _Sums(graph).transform()


def products_of(graph: GraphModule) -> Iterator[Node]:
    """Return the nodes of the matrix products in a program."""
    return (node for node in graph.graph.nodes if node.target in _PRODUCTS)


class _Sums(Transformer):
    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        self.small = {node.name for node in products_of(graph) if _is_small(node)}

    def run_node(self, node: Node) -> Any:
        if node.name not in self.small:
            return super().run_node(node)
        operands: Any = self.map_nodes_to_values(node.args, node)
        return _sum(*operands)


def _sum(*operands: Proxy) -> Proxy:
    """Return a matrix product as a sum over its inner axis, plus the added term."""
    aten, (*added, left, right) = torch.ops.aten, operands
    product = aten.mul.Tensor(aten.unsqueeze.default(left, -1), aten.unsqueeze.default(right, -3))
    total: Any = aten.sum.dim_IntList(product, [-2])
    return aten.add.Tensor(total, *added) if added else total


def _is_small(node: Node) -> bool:
    """Return whether a node is a small, unscaled product of numbers on the CPU."""
    left, right = map(_example, node.args[-2:])
    if left is None or right is None or node.kwargs:
        return False
    if left.device.type != "cpu" or left.dtype not in _EXACT or left.dtype != right.dtype:
        return False
    return math.prod(left.shape) * right.shape[-1] <= LIMIT


def _example(argument: Any) -> torch.Tensor | None:
    return argument.meta.get("val") if isinstance(argument, Node) else None
