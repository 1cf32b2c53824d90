"""The black-box α energy and the Rényi bound of Li and Turner."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.infer.elbo import ELBO

from moment_inference.objectives import choices, data_plates
from numpyro_moments.evaluation.failure_causes import diagnose_errors
from numpyro_moments.likelihoods.expected import tempered_jointly
from numpyro_moments.objectives.base import Objective, Program, vectorised
from numpyro_moments.objectives.densities import DensityValidation, check_density, samples
from numpyro_moments.objectives.elbo import latent_terms
from numpyro_moments.sites.traces import Traces, host_traces, observed_plates


def at_draws(program: Program, key: Any, *, consume: Callable[[Traces], Any]) -> tuple[Any, dict]:
    """Return what ``consume`` makes of a particle that NumPyro draws, and new mutable values."""
    with diagnose_errors(program.model, program.args, program.kwargs):
        keys = tuple(jax.random.split(key))
        sites = host_traces(*program, keys, DensityValidation, lambda fn: fn)
        traces = Traces.of(*sites)
        check_density(program, traces.guide, key)
        return consume(traces), traces.mutable


def log_ratio(traces: Traces, plates: data_plates.DataPlates) -> jax.Array:
    """Return log p − log q of all sites, each datum's share of it: [data plates]."""
    ours, theirs = (_shares(sites, plates) for sites in (traces.model, traces.guide))
    return ours - theirs


def _shares(sites: dict[str, dict], plates: data_plates.DataPlates) -> jax.Array:
    shares = (
        plates.share_per_datum(_log_prob(site), site["scale"], site["plates"])
        for site in samples(sites)
    )
    return sum(shares, start=jnp.zeros(()))


def _log_prob(site: dict) -> jax.Array:
    """Return the log-density of a draw; flows without inverse keep what it needs."""
    known = (site["intermediates"],) if site["intermediates"] else ()
    return site["fn"].log_prob(site["value"], *known)


class BBAlphaELBO(choices.AlphaEnergy, Objective):
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
            :class:`DeterministicELBO`, others passed to NumPyro's ``ELBO``.

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

    def loss_with_mutable_state(
        self,
        rng_key: Any,
        param_map: dict[str, Any],
        model: Callable,
        guide: Callable,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Return the energy, and the new values of the mutable sites.

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
        (data, latent, scale), mutable = self.particle_terms(rng_key, program)
        return {
            "loss": data_plates.bb_alpha_energy(data, latent, scale, self.alpha),
            "mutable_state": mutable,
        }

    def particle_terms(self, key: Any, program: Program) -> tuple[tuple[Any, ...], Any]:
        """Return arguments of ``energy`` by particle, and new mutable values."""
        if self.energy == "cavity":
            return vectorised(self, key, program, partial(at_draws, consume=self._cavity))
        return self.particles(key, program, self._terms, self.data)

    def _terms(self, traces: Traces) -> tuple[Any, Any, Any]:
        """Return terms of data and latent sites, and the data per datum."""
        around = observed_plates(traces.model)
        plates, sites = self.data(around), {name: traces.model[name] for name in around}
        data = (
            self._analytic(sites, plates)
            if self.propagation_kind == "analytic"
            else _drawn(sites, plates)
        )
        latent = sum(latent_terms(traces).values(), start=jnp.zeros(()))
        return data, latent, jnp.asarray(plates.scale)

    def _cavity(self, traces: Traces) -> tuple[Any, Any, Any]:
        """Return each datum with its share of the latent sites, and zero."""
        plates = self.data(observed_plates(traces.model))
        return log_ratio(traces, plates), jnp.zeros(()), jnp.asarray(plates.scale)

    def _analytic(self, sites: dict[str, dict], plates: data_plates.DataPlates) -> jax.Array:
        """Return the energy of each datum in closed form."""
        inner = lambda site: plates.other_plate_names(site["plates"])  # noqa: E731
        parts = [
            (name, site["fn"], site["value"], plates.relative_scale(site["scale"]), inner(site))
            for name, site in sites.items()
        ]
        return tempered_jointly(parts, self.alpha, plates.dims)


def _drawn(sites: dict[str, dict], plates: data_plates.DataPlates) -> jax.Array:
    """Return the log-density of each datum."""
    parts = (plates.per_datum(site["log_prob"], site["scale"]) for site in sites.values())
    return sum(parts, start=jnp.zeros(()))


class RenyiELBO(choices.RenyiBound, ELBO):
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
        bound = jnp.sum(data_plates.log_mean_power(ratios, 1 - self.alpha)) * scale[0]
        return {"loss": -bound, "mutable_state": mutable}


def _ratio(traces: Traces) -> tuple[jax.Array, jax.Array]:
    """Return log p − log q by element of the common plates, and its scale."""
    sites = {**traces.guide, **traces.model}.items()
    around = {name: site["plates"] for name, site in sites if site["type"] == "sample"}
    plates = data_plates.common_plates(around)
    data_plates.check_subsamples(around, plates)
    return log_ratio(traces, plates), jnp.asarray(plates.scale)
