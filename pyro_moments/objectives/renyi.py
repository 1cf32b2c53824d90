"""The Rényi bound of Li and Turner, for guides with a density."""

from __future__ import annotations

from typing import Any

import torch
from pyro.poutine import Trace

from moment_calculus.hosts.docstrings import documented
from moment_calculus.numerics.rulebook import check_draws
from moment_calculus.objectives.data import common_plates, refuse_subsamples
from moment_calculus.objectives.docstrings import RENYI
from moment_calculus.objectives.options import check_drawn, check_order, warn_single
from moment_calculus.objectives.powers import log_mean_power
from pyro_moments.objectives.base import Loss
from pyro_moments.objectives.densities import AtDraws, log_ratio
from pyro_moments.objectives.particles import Program
from pyro_moments.sites.binding import bind
from pyro_moments.sites.observed import is_sample, plates_of


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
        self.alpha, self.vectorised = alpha, AtDraws()

    def _eager(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        bind(guide, model)
        program = Program(model, guide, args, kwargs)
        ratios, scale = self.vectorised(program, _ratio, self.num_particles)
        return -log_mean_power(ratios, 1 - self.alpha).sum() * scale[0]


def _ratio(model: Trace, guide: Trace) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log p − log q by element of the plates around all sites, and what it stands for."""
    sites = [site for trace in (model, guide) for site in trace.nodes.values() if is_sample(site)]
    around = {str(site["name"]): plates_of(site) for site in sites}
    plates = common_plates(around)
    refuse_subsamples(around, plates)
    return log_ratio(model, guide, plates), torch.as_tensor(plates.scale)
