"""Rules of operations that move elements."""

from pyro_moments.rules.shapes import conversion, indexing, moves  # noqa: F401  (register)
