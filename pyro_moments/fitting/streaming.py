"""Use the posterior of earlier data as the prior of new data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyro.poutine.messenger import Messenger

from moment_calculus.optimisation.outcome import Fit
from moment_calculus.optimisation.weighting import priors_from_fit
from pyro_moments.fitting.storing import sampled_sites


class Streaming(Messenger):
    """Handler that gives latent sites other priors by name."""

    def __init__(self, priors: dict[str, Any]) -> None:
        super().__init__()
        self.priors = priors

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.priors:
            msg["fn"] = self.priors[msg["name"]]


def streaming(model: Callable, prior: Fit, data: tuple, named: dict[str, Any]) -> Callable:
    """Return a model whose prior is the posterior of an earlier fit; local sites keep their own."""
    priors = priors_from_fit(sampled_sites(model, data, named), prior)
    return Streaming(priors)(model)
