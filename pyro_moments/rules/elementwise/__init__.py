"""Rules of elementwise operations."""

from pyro_moments.rules.elementwise import activations, arithmetic, dropout  # noqa: F401  (register)
