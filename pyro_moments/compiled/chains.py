"""Chains of functions of large arrays, such as log(1 + exp(x)), in loops of their own.

A compiler puts what it can into one loop. Where each of its functions waits for the one before, a
processor has little to do at a time: softplus and the logarithm of a scale take twice as long in
one loop as one after the other.
"""

from __future__ import annotations

from typing import Any

from torch._inductor.custom_graph_pass import CustomSchedulerPass, get_hash_for_files
from torch._inductor.ir import ComputedBuffer
from torch._inductor.virtualized import V

LARGE = 2**15  # elements; smaller arrays stay in the fastest cache, and kernels few
_SLOW = frozenset(("exp", "expm1", "log", "log1p", "tanh", "erf", "lgamma", "digamma"))


class ChainsApart(CustomSchedulerPass):
    """Fuses nothing with a loop in which one slow function follows another."""

    def __call__(self, nodes: list[Any]) -> list[Any]:
        """The same nodes.

        Args:
            nodes: what is to be fused.
        """
        chains = filter(_is_chain, nodes)
        V.graph.no_fuse_buffer_names.update(chain.node.get_name() for chain in chains)
        return nodes

    def uuid(self) -> Any:
        """What tells this version from others, for the compiler's caches."""
        return get_hash_for_files((__file__,))


def _is_chain(node: Any) -> bool:
    buffer = node.node
    if not isinstance(buffer, ComputedBuffer) or node.is_reduction():
        return False
    if buffer.get_device_or_error().type != "cpu" or buffer.get_numel() < LARGE:
        return False
    return len(_SLOW & {*buffer.data.inner_fn_opcount().used_ops}) > 1
