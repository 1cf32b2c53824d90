"""Rules of elementwise operations."""

from numpyro_moments.rules.elementwise import activations, arithmetic, choices, conditions, powers

__all__ = ["activations", "arithmetic", "choices", "conditions", "powers"]
