"""Moment rules of Pyro's front end, by kind of torch functions."""

from pyro_moments.rules import elementwise, linear, normalised, shapes  # noqa: F401  (register)
