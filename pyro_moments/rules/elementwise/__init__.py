"""Rules of elementwise operations."""

from pyro_moments.rules.elementwise import activations, arithmetic, dropout

__all__ = ["activations", "arithmetic", "dropout"]
