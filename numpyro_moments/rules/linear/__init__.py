"""Rules of linear maps, contractions and sums."""

from numpyro_moments.rules.linear import maps, reductions

__all__ = ["maps", "reductions"]
