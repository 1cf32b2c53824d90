"""Rules of operations that move elements."""

from numpyro_moments.rules.shapes import indexing, moves

__all__ = ["indexing", "moves"]
