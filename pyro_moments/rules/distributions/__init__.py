"""Rules for what distributions do with their parameters: fill them in, check them."""

from pyro_moments.rules.distributions import parameters, validation

__all__ = ["parameters", "validation"]
