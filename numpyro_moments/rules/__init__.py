"""Moment rules of the NumPyro front end: one file per group of JAX primitives."""

from numpyro_moments.rules import (
    activations,
    arithmetic,
    calls,
    concatenation,
    control_flow,
    conversion,
    indexing,
    linear,
    padding,
    powers,
    reductions,
    selection,
    shapes,
    updates,
    windows,
)
from numpyro_moments.rules.table import PROGRAMS, RULES, moment_rule, program_rule

__all__ = [
    "PROGRAMS",
    "RULES",
    "activations",
    "arithmetic",
    "calls",
    "concatenation",
    "control_flow",
    "conversion",
    "indexing",
    "linear",
    "moment_rule",
    "padding",
    "powers",
    "program_rule",
    "reductions",
    "selection",
    "shapes",
    "updates",
    "windows",
]
