"""Quadrature of local latents, that meet each other through a border only, and along chains."""

from moment_inference.nested.local.chain import chain_evidence, chain_of
from moment_inference.nested.local.quadrature import local_corrections, node_count
from moment_inference.nested.local.structure import Structure, structure_of

__all__ = ["Structure", "chain_evidence", "chain_of"]
__all__ += ["local_corrections", "node_count", "structure_of"]
