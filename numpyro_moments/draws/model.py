"""A NumPyro model with its arguments, run with draws of its latent sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import ImproperUniform, biject_to

from moment_calculus.criticism.containers.arguments import as_array, constant_data
from moment_calculus.criticism.containers.draws import Arrays, Evaluation, PriorDraws
from moment_calculus.criticism.containers.sites import SiteAxes
from moment_calculus.criticism.containers.wording import (
    no_prior_draws,
    other_latent_sites,
    part_of_plate,
)
from moment_calculus.response.data import plates_of
from moment_calculus.response.wording import unknown_site
from numpyro_moments.draws.each import Each
from numpyro_moments.draws.plates import Whole, check_whole, hidden, is_observed, whole_value
from numpyro_moments.draws.sites import log_density
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.likelihoods.derived import restored
from numpyro_moments.prediction.particles import of_particles
from numpyro_moments.prediction.predict import is_factor
from numpyro_moments.prediction.sampled import SampledPrediction
from numpyro_moments.sites.posteriors import without_wrappers
from numpyro_moments.sites.traces import observing


@dataclass(frozen=True)
class NumPyroModel:
    """A model with its arguments.

    Args:
        model: the model.
        args: its arguments.
        named: likewise, by name.
        params: values of its ``param`` and ``mutable`` sites.
        latent: one draw of each latent site.
        precision: in which it is evaluated.
        key: for what is drawn.
        batch_size: draws that are evaluated at once; None for what fits into memory.
    """

    model: Callable
    args: tuple
    named: Mapping[str, Any]
    params: Mapping[str, Any]
    latent: Mapping[str, np.ndarray]
    precision: Precision
    key: Any
    batch_size: int | None = None

    def _trace(
        self, key: Any, values: Mapping[str, Any], outside: Callable = lambda fn: fn
    ) -> dict:
        arrays = {name: jnp.asarray(value) for name, value in values.items()}
        given = handlers.substitute(self.model, data={**self.params, **arrays})
        program = Whole(outside(handlers.seed(given, key)))
        try:
            trace = handlers.trace(program).get_trace(*self.args, **self.named)
        except (ValueError, TypeError) as error:
            for name, (part, size) in program.enlarged.items():
                raise part_of_plate(name, part, size, str(error).partition("\n")[0]) from error
            raise
        check_whole(program.enlarged, trace)
        return trace

    @cached_property
    def _first(self) -> dict[str, dict]:
        """The sites that are told, of a run with one draw."""
        with self.precision(), handlers.block():
            trace = self._trace(self.key, self.latent)
        return {
            name: {**site, "value": whole_value(site)}
            for name, site in trace.items()
            if _is_told(site)
        }

    @cached_property
    def sites(self) -> dict[str, SiteAxes]:
        """Its sites, with the plates that their axes are of."""
        missing = [name for name in self.latent if name not in self._first]
        drawn = [name for name, site in self._first.items() if self._is_open(name, site)]
        if missing or (drawn and self._observes):
            raise other_latent_sites(missing, drawn)
        return {name: self._axes(name, site) for name, site in self._first.items()}

    def _is_open(self, name: str, site: dict) -> bool:
        return site["type"] == "sample" and not site["is_observed"] and name not in self.latent

    @property
    def _observes(self) -> bool:
        return any(is_observed(site) for site in self._first.values())

    def _axes(self, name: str, site: dict) -> SiteAxes:
        shape, sample = jnp.shape(site["value"]), site["type"] == "sample"
        event = len(site["fn"].event_shape) if sample else 0
        plates = {plate: (dim - event, size) for plate, (dim, size) in plates_of(site).items()}
        kind = "latent" if name in self.latent else "observed" if sample else "deterministic"
        return SiteAxes(name, kind, shape, plates, event)

    @cached_property
    def observed(self) -> dict[str, np.ndarray]:
        """Values of the observed sites that have one."""
        found = _values(self._first, is_observed)
        return {name: np.asarray(value) for name, value in found.items()}

    @cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """The other arrays that it is called with."""
        return constant_data(self.model, self.args, self.named, self.observed.values(), as_array)

    def evaluate(self, values: Arrays) -> Evaluation:
        """What it says of draws of its latent sites.

        Args:
            values: by site, [draws, ...].
        """

        def told(values: Mapping[str, Any], key: Any) -> tuple:
            keys = jax.random.split(key)
            trace = self._trace(keys[0], values)
            again = self._trace(keys[1], values, handlers.uncondition)
            likelihood = {
                name: site["fn"].log_prob(site["value"])
                for name, site in trace.items()
                if is_observed(site)
            }
            return (
                log_density(trace),
                likelihood,
                _values(trace, _is_deterministic),
                {name: again[name]["value"] for name in likelihood},
            )

        parts, *found = self._each("evaluate", told, values)
        return Evaluation(parts.sum(-1, dtype=np.float64), *found)

    def log_joint(self, values: Arrays) -> np.ndarray:
        """Log density of draws of its latent sites and the observations together, [draws].

        Args:
            values: by site, [draws, ...].
        """

        def joint(values: Mapping[str, Any], key: Any) -> jax.Array:
            return log_density(self._trace(key, values))

        parts = self._each("log_joint", joint, values)
        return parts.sum(-1, dtype=np.float64)

    def replicate(self, values: Arrays) -> Arrays:
        """Draws of the sites that may be observed, and deterministic ones, given latent sites.

        Args:
            values: by site, [draws, ...].
        """

        def drawn(values: Mapping[str, Any], key: Any) -> dict[str, Any]:
            trace = self._trace(key, values, handlers.uncondition)
            return {
                name: value
                for name, value in _values(trace, _is_told).items()
                if name not in self.latent
            }

        return self._each("replicate", drawn, values)

    def quantity(self, of: str | Callable, values: Arrays) -> tuple[list[np.ndarray], Any]:
        """What a site is, or what a function of latent and deterministic sites makes, of each draw.

        Args:
            of: a site, of an observed one its mean; or the function.
            values: by site, [draws, ...].

        Returns:
            Arrays [draws, ...], and the tree of them.
        """
        if isinstance(of, str) and of not in self.latent and not _is_deterministic(self._site(of)):
            return [np.asarray(self.predicted(values)[of].parts.mean)], jax.tree.structure(0)

        def told(values: Mapping[str, Any], key: Any) -> Any:
            trace = self._trace(key, values, observing(predicting=True))
            sites = _values(trace, lambda site: site["name"] in values or _is_deterministic(site))
            return jax.tree.map(jnp.asarray, sites[of] if isinstance(of, str) else of(sites))

        return jax.tree.flatten(self._each("quantity", told, values))

    def _site(self, name: str) -> dict:
        with self.precision(), handlers.block():
            trace = self._trace(self.key, self.latent, observing(predicting=True))
        if name not in trace:
            raise unknown_site(name, trace)
        return trace[name]

    @property
    def improper(self) -> list[str]:
        """Names of latent sites whose prior is improper."""
        priors = {name: without_wrappers(self._first[name]["fn"]) for name in self.latent}
        return [name for name, prior in priors.items() if isinstance(prior, ImproperUniform)]

    @property
    def masked(self) -> dict[str, int]:
        """How many elements of observed sites a mask hides, where there are such, by site."""
        observed = (site for site in self._first.values() if is_observed(site))
        found = {site["name"]: hidden(site) for site in observed}
        return {name: count for name, count in found.items() if count}

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Draws on the unconstrained space.

        Args:
            values: by site, on the supports.
        """
        with self.precision():
            supports = {name: self._first[name]["fn"].support for name in values}
            return {
                name: np.asarray(biject_to(supports[name]).inv(jnp.asarray(value)), np.float64)
                for name, value in values.items()
            }

    def predicted(self, values: Arrays) -> dict[str, SampledPrediction]:
        """What draws of its latent sites predict together, by site.

        Args:
            values: by site, [draws, ...].
        """
        observing_all = observing(predicting=True)

        def each(values: Mapping[str, Any]) -> dict[str, Any]:
            trace = self._trace(self.key, values, observing_all)
            return {name: restored(site["fn"]) for name, site in trace.items() if is_observed(site)}

        with self.precision():
            found = jax.jit(jax.vmap(each))({name: jnp.asarray(v) for name, v in values.items()})
            return {name: SampledPrediction(name, of_particles(fn)) for name, fn in found.items()}

    def prior(self, count: int) -> PriorDraws | str:
        """Draws of the prior, or why there are none.

        Args:
            count: how many.
        """

        def drawn(values: Mapping[str, Any], key: Any) -> dict[str, Any]:
            return _values(self._trace(key, values, handlers.uncondition), _is_told)

        try:
            found = self._each("prior", drawn, {}, count)
        except NotImplementedError as error:
            return no_prior_draws(str(error))
        observed = {name for name, site in self._first.items() if is_observed(site)}
        return PriorDraws(
            {name: value for name, value in found.items() if name not in observed},
            {name: value for name, value in found.items() if name in observed},
        )

    @cached_property
    def _each(self) -> Each:
        arguments = jax.tree.leaves((self.args, dict(self.named)))
        inputs = [leaf.size for leaf in arguments if hasattr(leaf, "size")]
        return Each(self.key, self.precision, self.batch_size, max([1, *inputs]))


def _values(trace: dict, wanted: Callable[[dict], bool]) -> dict[str, Any]:
    return {name: jnp.asarray(site["value"]) for name, site in trace.items() if wanted(site)}


def _is_deterministic(site: dict) -> bool:
    return site["type"] == "deterministic" and hasattr(site["value"], "shape")


def _is_told(site: dict) -> bool:
    """Whether a container has a site."""
    return _is_deterministic(site) or (site["type"] == "sample" and not is_factor(site))
