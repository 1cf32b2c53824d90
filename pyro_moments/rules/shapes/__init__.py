"""Rules of operations that put elements elsewhere."""

from pyro_moments.rules.shapes import concatenation, conversion, indexing, moves, permutations

__all__ = ["concatenation", "conversion", "indexing", "moves", "permutations"]
