"""Moment rules of the NumPyro front end: one file per group of JAX primitives."""

from numpyro_moments.rules import activations, arithmetic, calls, control_flow, linear, shapes
from numpyro_moments.rules.table import PROGRAMS, RULES, moment_rule, program_rule

__all__ = [
    "PROGRAMS",
    "RULES",
    "activations",
    "arithmetic",
    "calls",
    "control_flow",
    "linear",
    "moment_rule",
    "program_rule",
    "shapes",
]
