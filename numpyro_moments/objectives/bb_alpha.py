"""The black-box α energy, sampled or in closed form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from moment_calculus.hosts.docstrings import documented
from moment_calculus.objectives.data import Data, DataPlates
from moment_calculus.objectives.docstrings import BB_ALPHA
from moment_calculus.objectives.options import check_alpha, check_energy, warn_collapse
from moment_calculus.objectives.powers import energy
from numpyro_moments.likelihoods import tempered_jointly
from numpyro_moments.objectives.base import Objective, Program, vectorised
from numpyro_moments.objectives.densities import at_draws, log_ratio
from numpyro_moments.objectives.elbo import latent_terms
from numpyro_moments.sites.traces import Traces, observed_plates


@documented("NumPyro", objective=BB_ALPHA)
class BBAlphaELBO(Objective):
    """Black-box α energy: between the ELBO and the log predictive likelihood of each datum.

    {objective}

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
        warn_collapse(alpha, num_particles, self.flow, energy)
        self.alpha, self.data, self.energy = alpha, Data(datum), energy
        if not self.draws:
            self.num_particles = 1  # they would all be the same

    def loss_with_mutable_state(
        self,
        rng_key: Any,
        param_map: dict[str, Any],
        model: Callable,
        guide: Callable,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """The energy, and the new values of the mutable sites.

        Args:
            rng_key: for what is drawn.
            param_map: values of the ``param`` and ``mutable`` sites by name.
            model: NumPyro model.
            guide: NumPyro guide; one without a model is bound to ``model``.
            *args: passed to both.
            **kwargs: passed to both.

        Returns:
            Dictionary with ``"loss"``, and ``"mutable_state"`` (None if there is none).
        """
        program = Program(model, guide, args, kwargs, param_map)
        (data, latent, scale), mutable = self.particle_terms(rng_key, program)
        return {"loss": energy(data, latent, scale, self.alpha), "mutable_state": mutable}

    def particle_terms(self, key: Any, program: Program) -> tuple[tuple[Any, ...], Any]:
        """What ``energy`` takes of every particle, and the new values of the mutable sites."""
        if self.energy == "cavity":
            return vectorised(self, key, program, partial(at_draws, consume=self._cavity))
        return self.particles(key, program, self._terms, self.data)

    def _terms(self, traces: Traces) -> tuple[Any, Any, Any]:
        """What each datum and the latent sites contribute, and how many data each stands for."""
        around = observed_plates(traces.model)
        plates, sites = self.data(around), {name: traces.model[name] for name in around}
        data = self._analytic(sites, plates) if self.flow == "analytic" else _drawn(sites, plates)
        latent = sum(latent_terms(traces).values(), start=jnp.zeros(()))
        return data, latent, jnp.asarray(plates.scale)

    def _cavity(self, traces: Traces) -> tuple[Any, Any, Any]:
        """The log-density of each datum with its share of the latent sites, which leaves none."""
        plates = self.data(observed_plates(traces.model))
        return log_ratio(traces, plates), jnp.zeros(()), jnp.asarray(plates.scale)

    def _analytic(self, sites: dict[str, dict], plates: DataPlates) -> jax.Array:
        """The energy of each datum, its expectation in closed form."""
        inner = lambda site: plates.without(site["plates"])  # noqa: E731
        parts = [
            (name, site["fn"], site["value"], plates.exponent(site["scale"]), inner(site))
            for name, site in sites.items()
        ]
        return tempered_jointly(parts, self.alpha, plates.dims)


def _drawn(sites: dict[str, dict], plates: DataPlates) -> jax.Array:
    """The log-density of each datum."""
    parts = (plates.each(site["log_prob"], site["scale"]) for site in sites.values())
    return sum(parts, start=jnp.zeros(()))
