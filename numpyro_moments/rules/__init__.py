"""Moment rules of NumPyro's front end, by kind of JAX primitives."""

from numpyro_moments.rules import elementwise, linear, normalised, programs, shapes, windows  # noqa: F401  (register)
