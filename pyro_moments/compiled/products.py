"""Small matrix products as sums, which a compiler fuses with what is around them.

A library is called for every product that stays, and what lies between two calls is compiled, and
run, as a file of its own: the step of a small network is little else than such calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node, Proxy, Transformer

LIMIT = 2**18  # multiplications; with more a library is faster
_PRODUCTS = tuple(
    getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "bmm", "baddbmm")
)
_EXACT = (torch.float32, torch.float64)


def with_sums(graph: GraphModule) -> GraphModule:
    """The same program with sums for small matrix products.

    Args:
        graph: a captured program, which stays as it is.
    """
    return _Sums(graph).transform()


def products_of(graph: GraphModule) -> Iterator[Node]:
    """The matrix products in a program.

    Args:
        graph: a captured program.
    """
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
    """What is added, if anything, and a product: the axis in the middle is summed."""
    aten, (*added, left, right) = torch.ops.aten, operands
    product = aten.mul.Tensor(aten.unsqueeze.default(left, -1), aten.unsqueeze.default(right, -3))
    total: Any = aten.sum.dim_IntList(product, [-2])
    return aten.add.Tensor(total, *added) if added else total


def _is_small(node: Node) -> bool:
    """Whether a product of plain numbers is small; scaled sums of products are left alone."""
    left, right = map(_example, node.args[-2:])
    if left is None or right is None or node.kwargs:
        return False
    if left.device.type != "cpu" or left.dtype not in _EXACT or left.dtype != right.dtype:
        return False
    return math.prod(left.shape) * right.shape[-1] <= LIMIT


def _example(argument: Any) -> torch.Tensor | None:
    return argument.meta.get("val") if isinstance(argument, Node) else None
