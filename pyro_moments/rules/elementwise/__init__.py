"""Rules of elementwise operations."""

from pyro_moments.rules.elementwise import activations, arithmetic, choices, dropout, powers

__all__ = ["activations", "arithmetic", "choices", "dropout", "powers"]
