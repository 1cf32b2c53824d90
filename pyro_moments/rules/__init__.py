"""Moment rules of Pyro's front end, by kind of torch functions."""

from pyro_moments.rules import (  # noqa: F401  (register)
    attention,
    elementwise,
    embeddings,
    linear,
    normalised,
    shapes,
    windows,
)
