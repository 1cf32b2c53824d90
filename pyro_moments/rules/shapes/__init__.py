"""Rules of operations that put elements elsewhere."""

from pyro_moments.rules.shapes import conversion, indexing, moves, permutations

__all__ = ["conversion", "indexing", "moves", "permutations"]
