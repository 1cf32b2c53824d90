"""Stochastic units: layers whose outputs are drawn, as functions and as modules."""

from typing import Any

from numpyro_moments.units.functions import (
    bernoulli_logistic,
    bernoulli_probit,
    gumbel_argmax,
    stochastic_binary,
    stochastic_rectifier,
)

__all__ = [
    "BernoulliLogistic",
    "BernoulliProbit",
    "GumbelArgmax",
    "StochasticBinary",
    "StochasticRectifier",
    "bernoulli_logistic",
    "bernoulli_probit",
    "gumbel_argmax",
    "stochastic_binary",
    "stochastic_rectifier",
]


def __getattr__(name: str) -> Any:
    """Import what needs flax where it is asked for."""
    if name in __all__:
        from numpyro_moments.units import layers

        return getattr(layers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
