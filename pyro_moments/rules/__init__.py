"""Moment rules of Pyro's front end, by kind of torch functions."""

from pyro_moments.rules import elementwise, linear, normalised, shapes
from pyro_moments.rules.table import RULES, moment_rule, named

__all__ = [
    "RULES",
    "elementwise",
    "linear",
    "moment_rule",
    "named",
    "normalised",
    "shapes",
]
