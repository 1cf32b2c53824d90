"""The posterior of earlier data as the prior of new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyro.poutine.messenger import Messenger

from moment_calculus.hosts.mini_batches import streamed_priors
from moment_calculus.optimisation.outcome import Fit
from pyro_moments.fitting.storing import sampled_sites


class Streaming(Messenger):
    """Gives latent sites other priors.

    Args:
        priors: distributions by site.
    """

    def __init__(self, priors: dict[str, Any]) -> None:
        super().__init__()
        self.priors = priors

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.priors:
            msg["fn"] = self.priors[msg["name"]]


def streaming(model: Callable, prior: Fit, data: tuple, named: dict[str, Any]) -> Callable:
    """A model whose prior is the posterior of an earlier fit; local sites keep their own.

    Args:
        model: the model.
        prior: the fit.
        data: arguments of the model.
        named: likewise, by name.

    Raises:
        ValueError: if the guide of the fit does not give its posterior.
    """
    priors = streamed_priors(sampled_sites(model, data, named), prior)
    return Streaming(priors)(model)
