"""Rules of operations that move elements."""

from pyro_moments.rules.shapes import concatenation, conversion, indexing, moves, permutations

__all__ = ["concatenation", "conversion", "indexing", "moves", "permutations"]
