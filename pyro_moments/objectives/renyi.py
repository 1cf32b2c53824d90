"""The Rényi bound of Li and Turner, for guides with a density."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from pyro.poutine import Trace

from moment_calculus.hosts.docstrings import documented
from moment_calculus.numerics.rulebook import check_draws
from moment_calculus.objectives.data import (
    DataPlates,
    common_plates,
    refuse_subsamples,
)
from moment_calculus.objectives.docstrings import RENYI
from moment_calculus.objectives.options import check_drawn, check_order, warn_single
from moment_calculus.objectives.powers import log_mean_power
from pyro_moments.objectives.base import Loss
from pyro_moments.objectives.particles import Program, Validated
from pyro_moments.particles.noise import vectorised
from pyro_moments.sites.binding import bind
from pyro_moments.sites.drawn import HostDraws, unwatched
from pyro_moments.sites.observed import is_sample, plates_of
from pyro_moments.sites.traces import run


@documented("Pyro", objective=RENYI)
class RenyiELBO(Loss):
    """Rényi bound (1/(1 − α)) log E_q[(p(y, θ) / q(θ))^(1 − α)] of the log evidence.

    {objective}

    Example:
        >>> bound = RenyiELBO(alpha=0.5, num_particles=10)
    """

    def __init__(
        self,
        alpha: float = 0.0,
        *,
        num_particles: int = 2,
        propagation: str = "sampled",
        **options: Any,
    ) -> None:
        alpha = check_order(alpha)
        check_drawn(propagation, type(self).__name__)
        check_draws((), num_particles)
        warn_single(alpha, num_particles)
        super().__init__(num_particles=num_particles, **options)
        self.alpha, self.validated = alpha, Validated()

    def _eager(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        bind(guide, model)
        self.validated(Program(model, guide, args, kwargs))

        def particle(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
            messenger = HostDraws(seed)
            return _log_ratio(*run(messenger, model, guide, args, kwargs, unwatched))

        ratios, scale = vectorised(particle, self.num_particles)
        return -log_mean_power(ratios, 1 - self.alpha).sum() * scale[0]


def _log_ratio(model: Trace, guide: Trace) -> tuple[torch.Tensor, torch.Tensor]:
    """log p − log q for each element of the plates around all sites, and what it stands for."""
    traces = [[site for site in t.nodes.values() if is_sample(site)] for t in (model, guide)]
    around = {str(site["name"]): plates_of(site) for sites in traces for site in sites}
    plates = common_plates(around)
    refuse_subsamples(around, plates)
    ours, theirs = (_total(sites, plates) for sites in traces)
    return ours - theirs, torch.as_tensor(plates.scale)


def _total(sites: list[Any], plates: DataPlates) -> torch.Tensor:
    return sum((_each(site, plates) for site in sites), start=torch.zeros(()))


def _each(site: Any, plates: DataPlates) -> torch.Tensor:
    log_prob = scale_and_mask(site["fn"].log_prob(site["value"]), 1.0, site["mask"])
    return plates.each(log_prob, site["scale"])
