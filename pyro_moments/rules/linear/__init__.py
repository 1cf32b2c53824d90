"""Rules of linear maps, contractions and sums."""

from pyro_moments.rules.linear import maps, reductions

__all__ = ["maps", "reductions"]
