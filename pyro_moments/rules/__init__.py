"""Moment rules of Pyro's front end, in one folder for each kind of torch functions."""

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
