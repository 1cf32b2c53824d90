"""The black-box α energy, sampled or in closed form."""

from __future__ import annotations

from typing import Any

import torch
from pyro.infer.util import is_validation_enabled
from pyro.poutine import Trace

from moment_calculus.objectives.data import DataPlateFinder, DataPlates
from moment_calculus.objectives.options import check_alpha, check_energy, warn_one_particle
from moment_calculus.objectives.powers import bb_alpha_energy
from pyro_moments.likelihoods import tempered_jointly
from pyro_moments.objectives.base import Objective, is_finite
from pyro_moments.objectives.densities import PyroDrawRunner, log_ratio
from pyro_moments.objectives.elbo import latent_sum
from pyro_moments.objectives.particles import Program
from pyro_moments.sites.drawn_traces import data_log_prob
from pyro_moments.sites.traces import is_observation, plates_of, validate_posteriors


class BBAlphaELBO(Objective):
    """Black-box α energy: between the ELBO and the log predictive likelihood of each datum.

    −(1/α) Σ_n log E_q[p(y_n | θ)^α] + KL(q ‖ p): the ELBO for α → 0 (exactly at 0), for α
    = 1 the log predictive likelihood of each datum. RenyiELBO has the opposite order: its
    ELBO is α → 1.

    A datum is an element of the plates around all observed sites, or of the plate
    ``datum``; what lies in plates inside it is summed. Several observed sites of a datum
    are one joint density. A user's scale and mask are inside the power, the scale of a
    subsample of the data outside, so that the mean over all mini-batches is the energy of
    all data. Observed sites without a common plate are one datum, with a warning.

    Sampled, E_q is a mean over the particles, inside the logarithm: biased, towards the
    ELBO, by O(1/K), and one particle is the ELBO. Analytic, it is a closed form for
    Normal observations and a quadrature for other univariate ones, without noise, of the
    Gaussian that matches what is observed of the parameters: powers see more of its tails
    than the ELBO does. Under dropout of three inputs by 0.3 the energy was 3 to 8 % off
    in two linear models, of which the ELBO is exact: a sum of few masked inputs is not
    Gaussian.

    ``energy="cavity"`` is the original, −(1/α) Σ_n log E_q[(p(y_n | θ) (p(θ) /
    q(θ))^(1/N))^α], N the full number of data, masked ones included; of each datum the
    default is the limit for α/N → 0. At α = 0 it is the ELBO by draws of all its terms.
    The ratio needs the density of the guide, so that the weights are drawn once for all
    rows. A latent site inside the plates of the data belongs wholly to its datum, one
    inside some of them in equal parts to the data that share it.

    Args:
        alpha: the power α, between 0 and 1.
        datum: name of the plate whose elements are the data.
        energy: ``"reparameterised"``, or ``"cavity"`` for ``propagation="sampled"`` and a
            guide with a density.
        num_particles: number of draws K, if anything is drawn.
        **options: ``propagation``, ``covariance``, ``rules``, ``categorical``,
            ``categorical_draws``, ``sample_sites`` and ``memory_limit`` as of
            :class:`DeterministicELBO`, others passed to Pyro's ``ELBO``.

    Raises:
        TypeError: if ``alpha`` is no number.
        ValueError: if ``alpha`` is not between 0 and 1, an option is out of range or has
            no meaning for ``energy="cavity"``, or (when evaluated) nothing is observed or
            ``datum`` is no plate around every observed site.
        UnsupportedMoments: when evaluated, if the model or the guide leaves what is
            supported; for ``energy="cavity"``, if a site of the guide has no density
            (dropout, a Delta), or its draws no gradient (discrete ones).

    Warns:
        UserWarning: for one sampled particle, or if all observations are one datum.

    Source: Li and Gal 2017, eq. 7, and eq. 3 for the original (Hernández-Lobato et al.
        2016).

    Example:
        >>> energy = BBAlphaELBO(alpha=0.5, num_particles=10, propagation="sampled")
    """

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        datum: str | None = None,
        energy: str = "reparameterised",
        num_particles: int = 1,
        **options: Any,
    ) -> None:
        alpha = check_alpha(alpha, type(self).__name__)
        check_energy(energy, options.get("propagation", "analytic"), options)
        super().__init__(num_particles=num_particles, **options)
        warn_one_particle(alpha, num_particles, self.propagation_kind, energy)
        self.alpha, self.data, self.energy = alpha, DataPlateFinder(datum), energy
        if not self.draws:
            self.num_particles = 1  # all particles would be the same
        if energy == "cavity":
            self.runner = PyroDrawRunner()

    def _eager(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        data, latent, scale = self.particle_terms(Program(model, guide, args, kwargs))
        value = bb_alpha_energy(data, latent, scale, self.alpha)
        if is_validation_enabled() and not is_finite(value):
            validate_posteriors(guide)
        return value

    def particle_terms(self, program: Program) -> tuple[torch.Tensor, ...]:
        """Return the arguments of ``energy``: the terms of data and latent sites, and a scale.

        Each has a leading axis of particles.
        """
        consume = self._cavity if self.energy == "cavity" else self._terms
        return self.particles(program._replace(data=self._plates), consume)

    def _plates(self, model: Trace) -> DataPlates:
        plates = {name: plates_of(site) for name, site in _observed(model).items()}
        return self.data(plates)

    def _terms(self, model: Trace, guide: Trace) -> tuple[torch.Tensor, ...]:
        """Return the terms of each datum and of the latent sites, and the data per datum."""
        plates, sites = self._plates(model), _observed(model)
        data = (
            self._analytic(sites, plates)
            if self.propagation_kind == "analytic"
            else _drawn(sites, plates)
        )
        return data, latent_sum(model, guide), torch.as_tensor(plates.scale)

    def _cavity(self, model: Trace, guide: Trace) -> tuple[torch.Tensor, ...]:
        """Return the terms of each datum with its share of the latent sites, which leaves zero."""
        plates = self._plates(model)
        ratio = log_ratio(model, guide, plates)
        return ratio, torch.zeros(()), torch.as_tensor(plates.scale)

    def _analytic(self, sites: dict[str, Any], plates: DataPlates) -> torch.Tensor:
        """Return the energy of each datum in closed form."""
        inner = lambda site: plates.other_plate_names(plates_of(site))  # noqa: E731
        parts = [
            (name, _masked(site), site["value"], plates.relative_scale(site["scale"]), inner(site))
            for name, site in sites.items()
        ]
        return tempered_jointly(parts, self.alpha, plates.dims)


def _observed(model: Trace) -> dict[str, Any]:
    return {name: site for name, site in model.nodes.items() if is_observation(site)}


def _masked(site: Any) -> Any:
    return site["fn"] if site["mask"] is None else site["fn"].mask(site["mask"])


def _drawn(sites: dict[str, Any], plates: DataPlates) -> torch.Tensor:
    """Return the log-density of each datum."""
    parts = [plates.per_datum(data_log_prob(site), site["scale"]) for site in sites.values()]
    return sum(parts[1:], start=parts[0])
