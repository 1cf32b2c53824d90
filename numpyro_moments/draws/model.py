"""A NumPyro model with its arguments, which runs with draws of its latent sites."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import ImproperUniform, biject_to

from moment_calculus.predictions import moments_of_draws
from moment_inference import plate_axes, unknown_site
from moment_inference.criticism import Arrays, model_with_draws
from numpyro_moments.draws.by_numpy import DrawnByNumPy
from numpyro_moments.evaluation.arguments import Precision, Static, apart
from numpyro_moments.evaluation.failure_causes import observe
from numpyro_moments.evaluation.programs import Programs
from numpyro_moments.likelihoods.structure import restored
from numpyro_moments.objectives.base import Program
from numpyro_moments.prediction.predict import SampledPrediction, of_particles
from numpyro_moments.sites.subsamples import Whole
from numpyro_moments.sites.terms import without_wrappers
from numpyro_moments.sites.traces import is_factor, observing

TERMS = 256  # terms of a log density that are summed in the precision of the draws


def is_latent_draw(site: dict) -> bool:
    """Return whether a site of a guide is one of the model's, not an auxiliary one."""
    is_sample = site["type"] == "sample" and not site["is_observed"]
    return is_sample and not site["infer"].get("is_auxiliary")


def log_density(trace: dict) -> jax.Array:
    """Return the log density of all sites, with scales and masks, as partial sums [parts]."""
    # To be added in double precision: over 10⁵ data, single precision loses hundredths of
    # nats.
    sites = [site for site in trace.values() if site["type"] == "sample"]
    return jnp.concatenate([jnp.zeros(1), *map(_partial_sums, sites)])


def _partial_sums(site: dict) -> jax.Array:
    known = (site["intermediates"],) if site["intermediates"] else ()
    density = site["fn"].log_prob(site["value"], *known)
    flat = jnp.ravel(density if site["scale"] is None else site["scale"] * density)
    return jnp.pad(flat, (0, -len(flat) % TERMS)).reshape(-1, TERMS).sum(-1)


def whole_value(site: dict) -> jax.Array:
    """Return the value of a site, broadcast to the shape of its distribution."""
    value = jnp.asarray(site["value"])
    if site["type"] != "sample":
        return value
    batch = value.shape[: value.ndim - len(site["fn"].event_shape)]
    shape = jnp.broadcast_shapes(site["fn"].batch_shape, batch)
    return jnp.broadcast_to(value, shape + value.shape[len(batch) :])


def check_observed_whole(enlarged: Mapping[str, tuple[int, int]], trace: dict) -> None:
    """Raise ValueError if observations are of a part of a plate only."""
    for site in filter(is_observed, trace.values()) if enlarged else ():
        shape, event = jnp.shape(site["value"]), len(site["fn"].event_shape)
        for name in plate_axes(site).keys() & enlarged.keys():
            dim, size = plate_axes(site)[name]
            if len(shape) < event - dim or shape[dim - event] != size:
                raise model_with_draws.part_of_plate(
                    name, *enlarged[name], f"in site '{site['name']}'"
                )


def is_observed(site: dict) -> bool:
    """Return whether a site is observed, and no factor."""
    return site["type"] == "sample" and site["is_observed"] and not is_factor(site)


NUMBERS_PER_BATCH = 2**24  # numbers that are computed together, over all draws


class Each:
    """Runs functions of one draw for all draws, compiled once by name and count."""

    def __init__(
        self,
        key: Any,
        precision: Precision,
        batch_size: int | None,
        data: list,
        structure: Hashable,  # of the data
        owners: tuple,
    ) -> None:
        # Without a batch size, as many draws run at once as fit into memory. The
        # functions read the data besides the draws; programs depend on ``owners``.
        self.key, self.precision, self.batch_size, self.data = key, precision, batch_size, data
        self.structure = structure
        with precision():
            self.programs = Programs(*owners)

    def __call__(
        self, name: Hashable, function: Callable, values: Arrays, count: int | None = None
    ) -> Any:
        """Return the results of a function for draws [draws, ...] by site, as arrays of NumPy.

        The name identifies the function, which takes one draw by site, a key and the data
        (None: as they are). A count is needed if there are no draws.
        """
        with self.precision():
            given = {site: jnp.asarray(value) for site, value in values.items()}
            count = count or len(next(iter(given.values())))
            keys = jax.random.split(self.key, count)
            first = {site: value[0] for site, value in given.items()}

            def mapped(values: Any, keys: Any, data: list | None) -> Any:
                size = min(count, self.batch_size or self._batch_size(function, first, data))
                each = lambda pair: function(*pair, data)  # noqa: E731
                return jax.lax.map(each, (values, keys), batch_size=size)

            whole = name, self.batch_size, self.structure
            found = self.programs.run_on(self.data, whole, mapped, given, keys)
            return jax.tree.map(np.asarray, found)

    def _batch_size(self, function: Callable, first: Mapping[str, Any], data: list | None) -> int:
        shapes = jax.tree.leaves(jax.eval_shape(function, first, self.key, data))
        inputs = (part.size for part in (*first.values(), *self.data) if hasattr(part, "size"))
        largest = max([1, *inputs])
        return max(1, NUMBERS_PER_BATCH // (sum(leaf.size for leaf in shapes) + 10 * largest))


@dataclass(frozen=True)
class NumPyroModel(model_with_draws.SitesOfFirstRun):
    """A model with its arguments, which runs with draws of its latent sites."""

    program: Program
    latent: Mapping[str, np.ndarray]  # one draw of each latent site
    precision: Precision
    key: Any
    batch_size: int | None = None  # draws at once; None: as many as fit into memory

    @cached_property
    def _data(self) -> tuple[list, Static]:
        return apart(tuple(self.program[2:]))

    def _trace(
        self,
        key: Any,
        values: Mapping[str, Any],
        data: list | None = None,  # in place of the arrays of arguments and parameters
        outside: Callable = lambda fn: fn,
    ) -> dict:
        own, rest = self._data
        args, named, params = rest.joined(own if data is None else data)
        arrays = {name: jnp.asarray(value) for name, value in values.items()}
        given = handlers.substitute(self.program.model, data={**params, **arrays})
        program = Whole(DrawnByNumPy(outside(handlers.seed(given, key))))
        try:
            trace = handlers.trace(program).get_trace(*args, **named)
        except (ValueError, TypeError) as error:
            for name, (part, size) in program.enlarged.items():
                raise model_with_draws.part_of_plate(
                    name, part, size, str(error).partition("\n")[0]
                ) from error
            raise
        check_observed_whole(program.enlarged, trace)
        return trace

    @cached_property
    def first_sites(self) -> dict[str, dict]:
        """Return the sites that ArviZ's containers hold, of a run with one draw."""
        with self.precision(), handlers.block():
            trace = self._trace(self.key, self.latent)
        copies = {name: {**site} for name, site in trace.items()}
        observe(copies, *self.program.of_model)
        return {
            name: {**site, "value": whole_value(site)}
            for name, site in trace.items()
            if _is_told(site)
        }

    def axes(self, name: str, site: Any) -> model_with_draws.SiteAxes:
        """Return the axes of a site."""
        shape, sample = jnp.shape(site["value"]), site["type"] == "sample"
        event = len(site["fn"].event_shape) if sample else 0
        plates = {plate: (dim - event, size) for plate, (dim, size) in plate_axes(site).items()}
        kind = "latent" if name in self.latent else "observed" if sample else "deterministic"
        return model_with_draws.SiteAxes(name, kind, shape, plates, event)

    @cached_property
    def observed(self) -> dict[str, np.ndarray]:
        """Return the values of the observed sites, by name."""
        found = _values(self.first_sites, is_observed)
        return {name: np.asarray(value) for name, value in found.items()}

    @cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """Return the other arrays among the model's arguments."""
        return model_with_draws.constant_data(
            *self.program.of_model, self.observed.values(), model_with_draws.as_array
        )

    def evaluate(self, values: Arrays) -> model_with_draws.Evaluation:
        """Evaluate log density, likelihoods, deterministic sites and replications at draws."""

        def run(values: Mapping[str, Any], key: Any, data: list | None) -> tuple:
            keys = jax.random.split(key)
            trace = self._trace(keys[0], values, data)
            again = self._trace(keys[1], values, data, handlers.uncondition)
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

        parts, *found = self._each("evaluate", run, values)
        return model_with_draws.Evaluation(parts.sum(-1, dtype=np.float64), *found)

    def log_joint(self, values: Arrays) -> np.ndarray:
        """Return the joint log density [draws] of draws and the observations."""

        def joint(values: Mapping[str, Any], key: Any, data: list | None) -> jax.Array:
            return log_density(self._trace(key, values, data))

        parts = self._each("log_joint", joint, values)
        return parts.sum(-1, dtype=np.float64)

    def replicate(self, values: Arrays) -> Arrays:
        """Draw observable and deterministic sites, given draws of the latent sites."""

        def drawn(values: Mapping[str, Any], key: Any, data: list | None) -> dict[str, Any]:
            trace = self._trace(key, values, data, handlers.uncondition)
            return {
                name: value
                for name, value in _values(trace, _is_told).items()
                if name not in self.latent
            }

        return self._each(("replicate", *self.latent), drawn, values)

    def quantity(
        self, of: str | Callable, values: Arrays
    ) -> tuple[list[np.ndarray], Callable[[list[Any]], Any]]:
        """Return arrays [draws, ...] of a site, or a function of sites, and what arranges alike."""
        if isinstance(of, str) and of not in self.latent and not _is_deterministic(self._site(of)):
            # Of an observed site the mean counts.
            return [np.asarray(self.mixtures(values)[of].parts.mean)], lambda parts: parts[0]

        def run(values: Mapping[str, Any], key: Any, data: list | None) -> Any:
            trace = self._trace(key, values, data, observing(predicting=True))
            sites = _values(trace, lambda site: site["name"] in values or _is_deterministic(site))
            return jax.tree.map(jnp.asarray, sites[of] if isinstance(of, str) else of(sites))

        each = self._each_of(of) if callable(of) else self._each
        name = "quantity", None if callable(of) else of
        arrays, tree = jax.tree.flatten(each(name, run, values))
        return arrays, lambda parts: jax.tree.unflatten(tree, parts)

    def _site(self, name: str) -> dict:
        with self.precision(), handlers.block():
            trace = self._trace(self.key, self.latent, None, observing(predicting=True))
        if name not in trace:
            raise unknown_site(name, trace)
        return trace[name]

    @property
    def improper(self) -> list[str]:
        """Return the names of latent sites with an improper prior."""
        priors = {name: without_wrappers(self.first_sites[name]["fn"]) for name in self.latent}
        return [name for name, prior in priors.items() if isinstance(prior, ImproperUniform)]

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Return draws on the unconstrained space, of draws on the supports."""
        with self.precision():
            supports = {name: self.first_sites[name]["fn"].support for name in values}
            return {
                name: np.asarray(biject_to(supports[name]).inv(jnp.asarray(value)), np.float64)
                for name, value in values.items()
            }

    def mixtures(self, values: Arrays) -> dict[str, SampledPrediction]:
        """Return the predictions of all draws together, by site."""
        observing_all = observing(predicting=True)

        def each(values: Mapping[str, Any]) -> dict[str, Any]:
            trace = self._trace(self.key, values, None, observing_all)
            return {name: restored(site["fn"]) for name, site in trace.items() if is_observed(site)}

        with self.precision():
            found = jax.jit(jax.vmap(each))({name: jnp.asarray(v) for name, v in values.items()})
            return {name: SampledPrediction(name, of_particles(fn)) for name, fn in found.items()}

    def predictions(self, values: Arrays) -> dict[str, Any]:
        """Return predictions of all draws together, and moments of deterministic sites."""
        moments = {}
        for name in self.deterministic:
            (draws,), _ = self.quantity(name, values)
            with self.precision():
                moments[name] = moments_of_draws(jnp.asarray(draws), full=False)
        return {**moments, **self.mixtures(values)}

    def draws_of_prior(self, count: int) -> Arrays:
        """Return the values of all sites in runs without observations."""

        def drawn(values: Mapping[str, Any], key: Any, data: list | None) -> dict[str, Any]:
            return _values(self._trace(key, values, data, handlers.uncondition), _is_told)

        return self._each("prior", drawn, {}, count)

    @cached_property
    def _each(self) -> Each:
        return self._each_of()

    def _each_of(self, *owners: Any) -> Each:
        data, rest = self._data
        how = self.key, self.precision, self.batch_size
        return Each(*how, data, rest.structure, (self.program.model, rest.leaves, *owners))


def _values(trace: dict, wanted: Callable[[dict], bool]) -> dict[str, Any]:
    return {name: jnp.asarray(site["value"]) for name, site in trace.items() if wanted(site)}


def _is_deterministic(site: dict) -> bool:
    return site["type"] == "deterministic" and hasattr(site["value"], "shape")


def _is_told(site: dict) -> bool:
    """Return whether ArviZ's containers hold a site: no factor, and no number of Python."""
    return _is_deterministic(site) or (site["type"] == "sample" and not is_factor(site))
