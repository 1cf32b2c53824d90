"""Keep chains of slow functions of large arrays, such as log(1 + exp(x)), in loops of their own.

The compiler fuses what it can into one loop. If each function in it waits for the one
before, the processor is idle: softplus and log of a scale take twice as long in one loop
as in two.
"""

from __future__ import annotations

from typing import Any

from torch._inductor.custom_graph_pass import CustomSchedulerPass, get_hash_for_files
from torch._inductor.ir import ComputedBuffer
from torch._inductor.virtualized import V

LARGE = 2**15  # elements; smaller arrays stay in the fastest cache, where fusion is better
_SLOW = frozenset(("exp", "expm1", "log", "log1p", "tanh", "erf", "lgamma", "digamma"))


class UnfusedChains(CustomSchedulerPass):
    """Compiler pass that fuses nothing with a loop in which one slow function follows another."""

    def __call__(self, nodes: list[Any]) -> list[Any]:
        """Mark the buffers of such loops as not to be fused, and return the same nodes."""
        chains = filter(_is_chain, nodes)
        V.graph.no_fuse_buffer_names.update(chain.node.get_name() for chain in chains)
        return nodes

    def uuid(self) -> Any:
        """Return a hash of this file, the version of the pass for the compiler's caches."""
        return get_hash_for_files((__file__,))


def _is_chain(node: Any) -> bool:
    buffer = node.node
    if not isinstance(buffer, ComputedBuffer) or node.is_reduction():
        return False
    if buffer.get_device_or_error().type != "cpu" or buffer.get_numel() < LARGE:
        return False
    return len(_SLOW & {*buffer.data.inner_fn_opcount().used_ops}) > 1
