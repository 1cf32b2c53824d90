"""Moment rules of the Pyro front end: one folder per kind of torch functions."""

from pyro_moments.rules import distributions, elementwise, linear, normalised, shapes
from pyro_moments.rules.table import RULES, moment_rule, named

__all__ = [
    "RULES",
    "distributions",
    "elementwise",
    "linear",
    "moment_rule",
    "named",
    "normalised",
    "shapes",
]
