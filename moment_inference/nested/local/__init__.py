"""Quadrature of local latents: blocks of a field that meet each other through a border only."""

from moment_inference.nested.local.quadrature import local_corrections, node_count
from moment_inference.nested.local.structure import Structure, structure_of

__all__ = ["Structure", "local_corrections", "node_count", "structure_of"]
