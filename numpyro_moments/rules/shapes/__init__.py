"""Rules of operations that move elements."""

from numpyro_moments.rules.shapes import (
    concatenation,
    conversion,
    gathering,
    indexing,
    moves,
    padding,
    updates,
)

__all__ = ["concatenation", "conversion", "gathering", "indexing", "moves", "padding", "updates"]
