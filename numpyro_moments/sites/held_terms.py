"""Terms of sites by held draws, where moments are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import Messenger

from moment_calculus import UnsupportedMoments
from moment_calculus.predictions import Moments
from numpyro_moments.evaluation.uncertain_inputs import with_values
from numpyro_moments.evaluation.wrappers import WRAPPERS
from numpyro_moments.sites.terms import POSTERIORS, scaled_sum, without_wrappers


class HeldSites(Messenger):
    """Gives Gaussian sites of a guide a value by held noise, a row with all coordinates.

    Without noise it notes how many coordinates there are, and sites are at their medians.
    """

    def __init__(self, fn: Callable, noise: Any = None) -> None:
        super().__init__(fn)
        self.noise, self.used, self.is_joint = noise, 0, False

    def process_message(self, msg: Any) -> None:
        """Give a latent site its value."""
        if msg["type"] == "plate":
            _require_whole(msg)
        is_free = msg["type"] == "sample" and not msg["is_observed"] and msg["value"] is None
        if is_free and not isinstance(without_wrappers(msg["fn"]), dist.Delta):
            msg["value"] = self._value(msg["name"], msg["fn"])

    def _value(self, name: str, fn: Any) -> jax.Array:
        shape = tuple(fn.batch_shape + fn.event_shape)
        if isinstance(fn, WRAPPERS):
            return jnp.broadcast_to(self._value(name, fn.base_dist), shape)
        if isinstance(fn, POSTERIORS.normals):
            return fn.loc + fn.scale * self._next(shape)
        if isinstance(fn, dist.MultivariateNormal):
            self.is_joint = True
            return fn.loc + (fn.scale_tril @ self._next(shape)[..., None])[..., 0]
        if isinstance(fn, POSTERIORS.of_plates):
            self.is_joint = True
            return fn.image(self._next(shape))
        if isinstance(fn, POSTERIORS.transformed):
            value = self._value(name, fn.base_dist)
            for transform in fn.transforms:
                value = transform(value)
            return value
        raise UnsupportedMoments(
            f"held draws are of Gaussian sites and their transforms, and the guide's site '{name}' "
            f"is {type(fn).__name__}",
            sites=[name],
            remedy="use DVIGuide or GaussianGuide",
        )

    def _next(self, shape: tuple[int, ...]) -> Any:
        start, self.used = self.used, self.used + int(np.prod(shape, dtype=int))
        if self.noise is None:
            return jnp.zeros(shape)
        return self.noise[start : self.used].reshape(shape)


def _require_whole(msg: Any) -> None:
    size, subsample_size = msg["args"]
    if subsample_size not in (None, size):
        raise UnsupportedMoments(
            f"plate '{msg['name']}' draws a subsample, and held draws take the same rows each time",
            remedy="leave out subsample_size; fit(..., batch_size=) makes mini-batches",
        )


@dataclass(frozen=True, eq=False)
class HeldTerms:
    """Means over held draws of the terms of all sites, computed when one is asked for."""

    objective: Any
    program: Any
    key: Any

    def term(self, name: str) -> jax.Array:
        """Return the term of a site: E_q[log p], less E_q[log q] of a latent one."""
        terms = self._terms[name]
        if self.objective.held_sites is not None:
            self.objective.held_sites[name] = len(terms)
        return jnp.mean(terms)

    @cached_property
    def coordinates(self) -> tuple[int, bool]:
        """Return the number of coordinates, and whether the guide has covariances of them."""
        counted: list[HeldSites] = []

        def guide(*args: Any, **kwargs: Any) -> Any:
            counted.append(HeldSites(self.program.guide))
            return counted[-1](*args, **kwargs)

        jax.eval_shape(lambda: [site["value"] for site in self._traces(guide)[1].values()])
        return counted[-1].used, counted[-1].is_joint

    @cached_property
    def _terms(self) -> dict[str, jax.Array]:
        """Return the terms of sites at each draw, [draws]."""
        noise = self.objective.held_noise(*self.coordinates)
        return jax.vmap(self._at)(jnp.asarray(noise, jnp.result_type(float)))

    def _traces(self, guide: Callable) -> tuple[dict, dict]:
        program, values = self.program, self.program.parameters
        model_key, guide_key = jax.random.split(self.key)
        args, kwargs = with_values(program.model, program.args, program.kwargs, _refuse_uncertain)
        seeded = handlers.substitute(handlers.seed(guide, guide_key), data=values)
        guide_trace = handlers.trace(seeded).get_trace(*args, **kwargs)
        mutable = {n: site["value"] for n, site in guide_trace.items() if site["type"] == "mutable"}
        replayed = handlers.replay(handlers.seed(program.model, model_key), guide_trace)
        substituted = handlers.substitute(replayed, data={**values, **mutable})
        return handlers.trace(substituted).get_trace(*args, **kwargs), guide_trace

    def _at(self, noise: Any) -> dict[str, jax.Array]:
        model_trace, guide_trace = self._traces(HeldSites(self.program.guide, noise))
        sites = {name: site for name, site in model_trace.items() if site["type"] == "sample"}
        terms = {name: _log_density(site) for name, site in sites.items()}
        for name in terms.keys() & guide_trace.keys():
            terms[name] = terms[name] - _log_density(guide_trace[name])
        return terms


def _log_density(site: Any) -> jax.Array:
    return scaled_sum(site["fn"].log_prob(site["value"]), site)


def _refuse_uncertain(name: str, moments: Moments) -> Any:
    raise UnsupportedMoments(
        f"argument '{name}' is uncertain, and held draws are of latent sites alone",
        remedy="make it a latent site of the model",
    )
