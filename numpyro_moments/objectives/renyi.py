"""The Rényi bound of Li and Turner, for guides with a density."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.infer.elbo import ELBO

from moment_calculus.numerics.rulebook import check_draws
from moment_calculus.objectives.data import check_subsamples, common_plates
from moment_calculus.objectives.options import check_order, check_sampled, warn_one_particle_renyi
from moment_calculus.objectives.powers import log_mean_power
from numpyro_moments.objectives.base import Program, vectorised
from numpyro_moments.objectives.densities import at_draws, log_ratio
from numpyro_moments.sites.traces import Traces


class RenyiELBO(ELBO):
    """Rényi bound (1/(1 − α)) log E_q[(p(y, θ) / q(θ))^(1 − α)] of the log evidence.

    Its order is opposite to that of :class:`BBAlphaELBO`: α → 1 is the ELBO, α = 0 the
    importance-weighted bound, and the bound falls as α grows. The expectation is a mean
    over K draws of all latent sites, each drawn once for all rows: the ratio needs the
    density of the guide. Elements of the plates around all sites are bounded one by one,
    and the scale of a subsample of such a plate multiplies the bound, as in NumPyro;
    Pyro's own puts it inside the power. NumPyro draws the sites.

    Args:
        alpha: the order α, not negative and not 1.
        num_particles: number of draws K.
        propagation: ``"sampled"``, which is the only one.
        **options: passed to NumPyro's ``ELBO``.

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
        self.alpha = alpha

    def loss_with_mutable_state(
        self,
        rng_key: Any,
        param_map: dict[str, Any],
        model: Callable,
        guide: Callable,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Return the negative bound, and the new values of the mutable sites.

        Args:
            rng_key: random key.
            param_map: values of the ``param`` and ``mutable`` sites by name.
            model: NumPyro model.
            guide: NumPyro guide; one without a model is bound to ``model``.
            *args: passed to both.
            **kwargs: passed to both.

        Returns:
            Dictionary with ``"loss"``, and ``"mutable_state"`` (None if there is none).
        """
        program = Program(model, guide, args, kwargs, param_map)
        particle = partial(at_draws, consume=_ratio)
        (ratios, scale), mutable = vectorised(self, rng_key, program, particle)
        bound = jnp.sum(log_mean_power(ratios, 1 - self.alpha)) * scale[0]
        return {"loss": -bound, "mutable_state": mutable}


def _ratio(traces: Traces) -> tuple[jax.Array, jax.Array]:
    """Return log p − log q by element of the plates around all sites, and what it stands for."""
    sites = {**traces.guide, **traces.model}.items()
    around = {name: site["plates"] for name, site in sites if site["type"] == "sample"}
    plates = common_plates(around)
    check_subsamples(around, plates)
    return log_ratio(traces, plates), jnp.asarray(plates.scale)
