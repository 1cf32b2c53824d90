"""Use the posterior of earlier data as the prior of new data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from numpyro.primitives import Messenger

from moment_calculus.optimisation.outcome import Fit
from moment_calculus.optimisation.weighting import priors_from_fit
from numpyro_moments.fitting.storing import sampled_sites


class Streaming(Messenger):
    """Handler that gives latent sites other priors by name."""

    def __init__(self, fn: Callable, priors: dict[str, Any]) -> None:
        super().__init__(fn)
        self.priors = priors

    @property
    def arrays(self) -> list[Any]:
        """Return the parameters of the priors."""
        return jax.tree.leaves(self.priors)

    def process_message(self, msg: Any) -> None:
        """Replace a prior."""
        if msg["type"] == "sample" and msg["name"] in self.priors:
            msg["fn"] = self.priors[msg["name"]]


def streaming(model: Callable, prior: Fit, data: tuple, named: dict[str, Any]) -> Streaming:
    """Return a model whose prior is the posterior of an earlier fit; local sites keep their own."""
    priors = priors_from_fit(sampled_sites(model, data, named), prior)
    return Streaming(model, priors)
