"""Rules of linear maps, contractions and sums."""

from pyro_moments.rules.linear import einsum, maps, reductions

__all__ = ["einsum", "maps", "reductions"]
