"""Moment rules of NumPyro's front end, by kind of JAX primitives."""

from numpyro_moments.rules import elementwise, linear, normalised, programs, shapes, windows
from numpyro_moments.rules.table import PROGRAMS, RULES, moment_rule, program_rule

__all__ = [
    "PROGRAMS",
    "RULES",
    "elementwise",
    "linear",
    "moment_rule",
    "normalised",
    "program_rule",
    "programs",
    "shapes",
    "windows",
]
