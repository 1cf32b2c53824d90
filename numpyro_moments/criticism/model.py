"""A NumPyro model with its arguments, run with draws of its latent sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import ImproperUniform, biject_to
from numpyro.distributions.batch_util import promote_batch_shape
from numpyro.primitives import Messenger

from moment_calculus.criticism.containers.arguments import constant_data
from moment_calculus.criticism.containers.draws import Arrays, Evaluation, PriorDraws
from moment_calculus.criticism.containers.sites import SiteAxes
from moment_calculus.criticism.containers.wording import no_prior_draws, other_latent_sites
from moment_calculus.response.data import plates_of
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.prediction.predict import is_factor
from numpyro_moments.prediction.sampled import SampledPrediction
from numpyro_moments.sites.posteriors import without_wrappers
from numpyro_moments.sites.traces import observing

AT_ONCE = 2**24  # numbers of all draws that are evaluated together


class Whole(Messenger):
    """Gives plates all their elements, where the model takes a subsample."""

    def process_message(self, msg: Any) -> None:
        """Take all of a plate."""
        if msg["type"] == "plate":
            size = msg["args"][0]
            msg["args"], msg["value"] = (size, size), jnp.arange(size)


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
        given = handlers.substitute(self.model, data={**self.params, **values})
        program = Whole(outside(handlers.seed(given, key)))
        return handlers.trace(program).get_trace(*self.args, **self.named)

    @cached_property
    def _first(self) -> dict[str, dict]:
        """The sites that are told, of a run with one draw."""
        with self.precision(), handlers.block():
            trace = self._trace(self.key, self.latent)
        return {name: site for name, site in trace.items() if _is_told(site)}

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
        return any(_is_observed(site) for site in self._first.values())

    def _axes(self, name: str, site: dict) -> SiteAxes:
        shape, sample = jnp.shape(site["value"]), site["type"] == "sample"
        event = len(site["fn"].event_shape) if sample else 0
        plates = {plate: (dim - event, size) for plate, (dim, size) in plates_of(site).items()}
        kind = "latent" if name in self.latent else "observed" if sample else "deterministic"
        return SiteAxes(name, kind, shape, plates, event)

    @cached_property
    def observed(self) -> dict[str, np.ndarray]:
        """Values of the observed sites that have one."""
        found = _values(self._first, _is_observed)
        return {name: np.asarray(value) for name, value in found.items()}

    @cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """The other arrays that it is called with."""
        return constant_data(self.model, self.args, self.named, self.observed.values(), _as_array)

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
                if _is_observed(site)
            }
            return (
                _joint(trace),
                likelihood,
                _values(trace, _is_deterministic),
                {name: again[name]["value"] for name in likelihood},
            )

        return Evaluation(*self._each(told, values))

    def log_joint(self, values: Arrays) -> np.ndarray:
        """Log density of draws of its latent sites and the observations together, [draws].

        Args:
            values: by site, [draws, ...].
        """
        return self._each(lambda values, key: _joint(self._trace(key, values)), values)

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

        return self._each(drawn, values)

    @property
    def improper(self) -> list[str]:
        """Names of latent sites whose prior is improper."""
        priors = {name: without_wrappers(self._first[name]["fn"]) for name in self.latent}
        return [name for name, prior in priors.items() if isinstance(prior, ImproperUniform)]

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
            return {name: site["fn"] for name, site in trace.items() if _is_observed(site)}

        with self.precision():
            found = jax.jit(jax.vmap(each))({name: jnp.asarray(v) for name, v in values.items()})
            return {
                name: SampledPrediction(name, promote_batch_shape(fn)) for name, fn in found.items()
            }

    def prior(self, count: int) -> PriorDraws | str:
        """Draws of the prior, or why there are none.

        Args:
            count: how many.
        """

        def drawn(values: Mapping[str, Any], key: Any) -> dict[str, Any]:
            return _values(self._trace(key, values, handlers.uncondition), _is_told)

        try:
            found = self._each(drawn, {}, count)
        except NotImplementedError as error:
            return no_prior_draws(str(error))
        observed = {name for name, site in self._first.items() if _is_observed(site)}
        return PriorDraws(
            {name: value for name, value in found.items() if name not in observed},
            {name: value for name, value in found.items() if name in observed},
        )

    def _each(self, function: Callable, values: Arrays, count: int | None = None) -> Any:
        """What a function of one draw and a key tells of all of them, in double arrays of NumPy."""
        with self.precision():
            given = {name: jnp.asarray(value) for name, value in values.items()}
            count = count or len(next(iter(given.values())))
            keys = jax.random.split(self.key, count)
            size = self.batch_size or self._fitting(function, {n: v[0] for n, v in given.items()})
            mapped = partial(jax.lax.map, lambda pair: function(*pair), batch_size=min(size, count))
            found = jax.jit(mapped)((given, keys))
            return jax.tree.map(np.asarray, found)

    def _fitting(self, function: Callable, values: Mapping[str, Any]) -> int:
        shapes = jax.tree.leaves(jax.eval_shape(function, values, self.key))
        inputs = [
            leaf.size
            for leaf in jax.tree.leaves((self.args, dict(self.named), values))
            if hasattr(leaf, "size")
        ]
        size = sum(leaf.size for leaf in shapes) + 10 * max([1, *inputs])
        return max(1, AT_ONCE // size)


def _values(trace: dict, wanted: Callable[[dict], bool]) -> dict[str, Any]:
    return {name: jnp.asarray(site["value"]) for name, site in trace.items() if wanted(site)}


def _joint(trace: dict) -> jax.Array:
    return jnp.asarray(sum(map(log_density, trace.values())))


def _is_deterministic(site: dict) -> bool:
    return site["type"] == "deterministic" and hasattr(site["value"], "shape")


def _is_observed(site: dict) -> bool:
    return site["type"] == "sample" and site["is_observed"] and not is_factor(site)


def _is_told(site: dict) -> bool:
    """Whether a container has a site."""
    return _is_deterministic(site) or (site["type"] == "sample" and not is_factor(site))


def is_latent_draw(site: dict) -> bool:
    """Whether a site of a guide is one of the model's, not an auxiliary one.

    Args:
        site: of a trace.
    """
    is_sample = site["type"] == "sample" and not site["is_observed"]
    return is_sample and not site["infer"].get("is_auxiliary")


def log_density(site: dict) -> jax.Array | float:
    """Log density of a site, with its scale and mask.

    Args:
        site: of a trace.
    """
    if site["type"] != "sample":
        return 0.0
    known = (site["intermediates"],) if site["intermediates"] else ()
    density = site["fn"].log_prob(site["value"], *known)
    return jnp.sum(density if site["scale"] is None else site["scale"] * density)


def _as_array(value: Any) -> np.ndarray | None:
    """An array of numbers, or None."""
    if not isinstance(value, (jax.Array, np.ndarray, list, tuple, int, float)) or value is None:
        return None
    try:
        found = np.asarray(value)
    except (TypeError, ValueError):
        return None
    return found if found.dtype.kind in "biuf" else None
