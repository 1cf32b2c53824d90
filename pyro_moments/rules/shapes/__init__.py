"""Rules of operations that move elements."""

from pyro_moments.rules.shapes import conversion, indexing, moves

__all__ = ["conversion", "indexing", "moves"]
