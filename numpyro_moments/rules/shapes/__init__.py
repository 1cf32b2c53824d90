"""Rules of operations that move elements."""

from numpyro_moments.rules.shapes import indexing, moves  # noqa: F401  (register)
