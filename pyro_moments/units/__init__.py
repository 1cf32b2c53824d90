"""Stochastic units: layers whose outputs are drawn, as functions and as modules."""

from pyro_moments.units.functions import (
    bernoulli_logistic,
    bernoulli_probit,
    gumbel_argmax,
    stochastic_binary,
    stochastic_rectifier,
)
from pyro_moments.units.layers import (
    BernoulliLogistic,
    BernoulliProbit,
    GumbelArgmax,
    StochasticBinary,
    StochasticRectifier,
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
