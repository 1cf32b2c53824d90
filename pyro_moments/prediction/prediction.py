"""Closed-form prediction of one site: moments and log density of what the model observes."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import sum_rightmost

from moment_calculus.hosts.docstrings import PREDICTED_SITE, documented
from moment_calculus.hosts.predictions import PredictedSite
from moment_calculus.hosts.wrappers import unwrapped
from pyro_moments.likelihoods import predictive

WRAPPERS = (torch.distributions.Independent, ExpandedDistribution, MaskedDistribution)


@documented("Pyro", site=PREDICTED_SITE)
class Prediction(PredictedSite):
    """Predictive distribution of one site, as moments and a log density.

    {site}
    """

    def __init__(self, name: str, fn: Any) -> None:
        base, summed = unwrapped(fn, WRAPPERS)
        mean, epistemic, aleatoric, log_prob = predictive(name, base)

        def log_density(value: torch.Tensor) -> torch.Tensor:
            return sum_rightmost(log_prob(value), summed)

        super().__init__(name, fn, mean, epistemic, aleatoric, log_density)

    @torch.no_grad()  # what is computed lazily would otherwise record gradients
    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log predictive density log E_q[p(value)], of the distribution's batch shape.

        Args:
            value: observations.
        """
        return super().log_prob(value)
