"""Moment rules of the Pyro front end: one file per group of torch functions."""

from pyro_moments.rules import (
    activations,
    arithmetic,
    axes,
    composites,
    conversion,
    indexing,
    linear,
    normalisation,
    parameters,
    powers,
    reductions,
    selection,
    shapes,
    validation,
)
from pyro_moments.rules.table import RULES, moment_rule, named

__all__ = [
    "RULES",
    "activations",
    "arithmetic",
    "axes",
    "composites",
    "conversion",
    "indexing",
    "linear",
    "moment_rule",
    "named",
    "normalisation",
    "parameters",
    "powers",
    "reductions",
    "selection",
    "shapes",
    "validation",
]
