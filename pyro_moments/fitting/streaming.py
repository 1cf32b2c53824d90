"""The posterior of earlier data as the prior of new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pyro.poutine.messenger import Messenger

from moment_calculus.hosts.mini_batches import global_sites
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
    sites = sampled_sites(model, data, named)
    plates = {
        name: ([frame.name for frame in site["cond_indep_stack"]], site["is_observed"])
        for name, site in sites.items()
    }
    names = global_sites(plates, prior.guide)
    with torch.no_grad():
        posterior = prior.guide.get_posterior(prior.params)
    return Streaming({name: fn for name, fn in posterior.items() if name in names})(model)
