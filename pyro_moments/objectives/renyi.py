"""The Rényi bound of Li and Turner, for guides with a density."""

from __future__ import annotations

from typing import Any

import torch
from pyro.poutine import Trace

from moment_calculus.numerics.rulebook import check_draws
from moment_calculus.objectives.data import check_subsamples, common_plates
from moment_calculus.objectives.options import check_order, check_sampled, warn_one_particle_renyi
from moment_calculus.objectives.powers import log_mean_power
from pyro_moments.objectives.base import Loss
from pyro_moments.objectives.densities import PyroDrawRunner, log_ratio
from pyro_moments.objectives.particles import Program
from pyro_moments.sites.traces import bind, is_sample, plates_of


class RenyiELBO(Loss):
    """Rényi bound (1/(1 − α)) log E_q[(p(y, θ) / q(θ))^(1 − α)] of the log evidence.

    Its order is opposite to that of :class:`BBAlphaELBO`: α → 1 is the ELBO, α = 0 the
    importance-weighted bound, and the bound falls as α grows. The expectation is a mean
    over K draws of all latent sites, each drawn once for all rows: the ratio needs the
    density of the guide. Elements of the plates around all sites are bounded one by one,
    and the scale of a subsample of such a plate multiplies the bound, as in NumPyro;
    Pyro's own puts it inside the power. Pyro draws the sites.

    Args:
        alpha: the order α, not negative and not 1.
        num_particles: number of draws K.
        propagation: ``"sampled"``, which is the only one.
        **options: passed to Pyro's ``ELBO``.

    Raises:
        TypeError: if ``alpha`` is no number.
        ValueError: if ``alpha`` is negative or 1, ``propagation`` is another one, or
            (when evaluated) a plate is subsampled that is not around every site: use
            :class:`BBAlphaELBO`.
        UnsupportedMoments: when evaluated, if a site of the guide has no density
            (dropout, a Delta), or its draws no gradient (discrete ones).

    Warns:
        UserWarning: for one particle.

    Source: Li and Turner 2016, eq. 9.

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
        check_sampled(propagation, type(self).__name__)
        check_draws((), num_particles)
        warn_one_particle_renyi(alpha, num_particles)
        super().__init__(num_particles=num_particles, **options)
        self.alpha, self.runner = alpha, PyroDrawRunner()

    def _eager(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        bind(guide, model)
        program = Program(model, guide, args, kwargs)
        ratios, scale = self.runner(program, _ratio, self.num_particles)
        return -log_mean_power(ratios, 1 - self.alpha).sum() * scale[0]


def _ratio(model: Trace, guide: Trace) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log p − log q by element of the plates around all sites, and what it stands for."""
    sites = [site for trace in (model, guide) for site in trace.nodes.values() if is_sample(site)]
    around = {str(site["name"]): plates_of(site) for site in sites}
    plates = common_plates(around)
    check_subsamples(around, plates)
    return log_ratio(model, guide, plates), torch.as_tensor(plates.scale)
