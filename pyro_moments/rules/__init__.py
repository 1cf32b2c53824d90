"""Moment rules of the Pyro front end: one file per group of torch functions."""

from pyro_moments.rules import (
    activations,
    arithmetic,
    composites,
    linear,
    parameters,
    powers,
    shapes,
    validation,
)
from pyro_moments.rules.table import RULES, moment_rule, named

__all__ = [
    "RULES",
    "activations",
    "arithmetic",
    "composites",
    "linear",
    "moment_rule",
    "named",
    "parameters",
    "powers",
    "shapes",
    "validation",
]
