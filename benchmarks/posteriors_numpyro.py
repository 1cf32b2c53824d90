"""Models of posteriordb trained, and sampled from, in NumPyro."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.experimental.ode import odeint
from numpyro.infer import MCMC, NUTS
from posteriors_models import Host
from posteriors_nuts import CHAINS, DRAWS

from numpyro_moments import DVIGuide, Fit, LinearResponse, fit, linear_response


def integrated(derivative: Callable, start: Any, times: np.ndarray, parameters: Any) -> Any:
    tolerances = {"rtol": 1e-6, "atol": 1e-8, "mxstep": 1000}  # as in NumPyro's own example
    return odeint(derivative, start, jnp.asarray(times), parameters, **tolerances)


HOST = Host(numpyro, dist, jnp.asarray, jnp, jax.lax.scan, integrated)


def trained(make: Callable[[], Callable], method: str) -> tuple[Fit, dict[str, Any]]:
    """The fit of a model, and location and scale by site."""
    with jax.enable_x64(True):
        found = fit(make(), DVIGuide(), method=method, float64=True)
    sites = {name.removesuffix("_auto_loc") for name in found.params if name.endswith("_loc")}
    part = lambda site, what: np.asarray(found.params[f"{site}_auto_{what}"])  # noqa: E731
    return found, {site: (part(site, "loc"), part(site, "scale")) for site in sites}


def fresh_fit(seed: int, model: Callable, *data: Any, **options: Any) -> Fit:
    """A fit from a start of its own."""
    return fit(model, DVIGuide(), *data, seed=seed, **options)


def doubles() -> Any:
    """A context of double precision."""
    return jax.enable_x64(True)


def response_of(model: Callable, found: Fit, data: list[Any]) -> LinearResponse:
    """Linear response about a fit of these data."""
    return linear_response(model, found.guide, *data, params=found.params, tolerance=1.0)


def nuts(make: Callable[[], Callable], watch: Callable) -> list[dict[str, jax.Array]]:
    """Chain after chain, as ``MCMC`` runs them: each compiles anew, in every run."""
    with jax.enable_x64(True):
        return _draw(_chain(make()), watch)


def compiled_nuts(make: Callable[[], Callable]) -> Callable[[Callable], None]:
    """The same chains as one function of their keys, compiled before it is watched."""
    with jax.enable_x64(True):
        return partial(_draw, jax.jit(_chain(make())).lower(jax.random.key(0)).compile())


def _chain(model: Callable) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """The draws of a chain by its key."""
    sampler = MCMC(NUTS(model), num_warmup=DRAWS, num_samples=DRAWS, progress_bar=False)

    def draws(key: jax.Array) -> dict[str, jax.Array]:
        sampler.run(key)
        return sampler.get_samples()

    return draws


def _draw(chain: Callable, watch: Callable) -> list[dict[str, jax.Array]]:
    found = []
    for key in jax.random.split(jax.random.key(0), CHAINS):
        watch()
        found.append(jax.block_until_ready(chain(key)))
    return found
