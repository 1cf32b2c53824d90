"""The parameters of a model's priors, and priors with numbers added to them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.ops.provenance import eval_provenance
from numpyro.primitives import Messenger

from numpyro_moments.evaluation.wrappers import WRAPPERS
from numpyro_moments.sites.terms import without_wrappers
from numpyro_moments.sites.traces import is_latent


def prior_parameters(
    model: Callable, sites: Mapping[str, dict], args: tuple, kwargs: Mapping[str, Any]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the shapes of the priors' parameters in the model, by (site, parameter).

    Parameters that depend on other latent sites are left out.
    """
    latent = {name: site["value"] for name, site in sites.items() if is_latent(site)}

    def parameters(**values: Any) -> dict[str, dict[str, Any]]:
        substituted = handlers.substitute(handlers.seed(model, 0), data=values)
        run = handlers.trace(substituted).get_trace(*args, **kwargs)
        return {name: _parameters(run[name]["fn"]) for name in latent}

    origins = eval_provenance(parameters, **latent)
    shapes = jax.eval_shape(parameters, **latent)
    return {
        (name, part): _written(shape.shape)
        for name in latent
        for part, shape in shapes[name].items()
        if not origins[name][part]
    }


def _written(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a parameter's shape before NumPyro added leading axes to it for broadcasting."""
    return shape[next((axis for axis, size in enumerate(shape) if size != 1), len(shape)) :]


class ShiftPriors(Messenger):
    """Handler that adds numbers to the parameters of the priors, by (site, parameter)."""

    def __init__(self, fn: Callable, numbers: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(fn)
        self.numbers = numbers

    def process_message(self, msg: Any) -> None:
        """Shift the prior of a site."""
        numbers = {part: by for (site, part), by in self.numbers.items() if site == msg["name"]}
        if msg["type"] == "sample" and numbers:
            msg["fn"] = _shifted(msg["fn"], numbers)


def _parameters(fn: Any) -> dict[str, jax.Array]:
    """Return the continuous parameters of a prior, by name."""
    base, real = without_wrappers(fn), jnp.result_type(float)
    return {
        name: jnp.asarray(part, jnp.promote_types(jnp.result_type(part), real))
        for name, part in _given(base).items()
        if not base.arg_constraints[name].is_discrete
    }


def _given(base: Any) -> dict[str, Any]:
    known = {name: vars(base).get(name) for name in base.arg_constraints}
    return {name: part for name, part in known.items() if part is not None}


def _shifted(fn: Any, numbers: Mapping[str, Any]) -> Any:
    """Return a prior with numbers added to its parameters; masks and expansions stay."""
    if isinstance(fn, WRAPPERS):
        new = copy.copy(fn)
        new.base_dist = _shifted(fn.base_dist, numbers)
        return new
    moved = {name: part + numbers.get(name, 0) for name, part in _given(fn).items()}
    return type(fn)(**moved, validate_args=False)
