"""Rules of elementwise operations."""

from pyro_moments.rules.elementwise import (  # noqa: F401  (register)
    activations,
    arithmetic,
    dropout,
)
