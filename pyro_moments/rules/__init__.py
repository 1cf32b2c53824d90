"""Moment rules of Pyro's front end, by kind of torch functions."""

from pyro_moments.rules import (  # noqa: F401  (register)
    attention,
    elementwise,
    embeddings,
    linear,
    multi_head,
    normalised,
    recurrent,
    shapes,
    validation,
    windows,
)
