"""Rules of linear maps, contractions and reductions."""

from numpyro_moments.rules.linear import maps, reductions

__all__ = ["maps", "reductions"]
