"""Rules of convolutions, pools, padding and largest entries."""

from pyro_moments.rules.windows import convolutions, extremes, padding, pools  # noqa: F401  (register)
