"""Log-densities of guide and model at draws of all latent sites, each drawn once for all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.ops.provenance import eval_provenance
from numpyro.primitives import Messenger

from guides.families.dropout_texts import no_density
from moment_calculus.errors import not_reparameterised, point_without_density
from moment_calculus.objectives.data import DataPlates
from numpyro_moments.failure_causes import diagnose_errors
from numpyro_moments.objectives.base import Program
from numpyro_moments.sites.messenger import model_site
from numpyro_moments.sites.posteriors import dropout_posterior, without_wrappers
from numpyro_moments.sites.traces import Traces, host_traces


class _ValidateDensity(Messenger):
    """Raises for latent sites whose density, or gradient of a draw, is not known."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        fn = msg["fn"]
        if (dropped := dropout_posterior(fn)) is not None:
            raise no_density(dropped.design.site)
        if not (_is_point(fn) or fn.has_rsample):
            name, inner = model_site(msg), without_wrappers(fn)
            raise not_reparameterised(name, inner, framework="NumPyro", by_name=False)


def at_draws(program: Program, key: Any, *, consume: Callable[[Traces], Any]) -> tuple[Any, dict]:
    """Return what ``consume`` makes of a particle that NumPyro draws, and new mutable values."""
    model, guide, args, kwargs, parameters = program

    def traced(part: Callable) -> dict:
        return handlers.trace(part).get_trace(*args, **kwargs)

    with diagnose_errors(model, args, kwargs):
        keys = tuple(jax.random.split(key))
        sites = host_traces(model, guide, traced, parameters, keys, _ValidateDensity, lambda fn: fn)
        traces = Traces.of(*sites)
        check_density(program, traces.guide, key)
        return consume(traces), traces.mutable


def _is_point(fn: Any) -> bool:
    return isinstance(without_wrappers(fn), dist.Delta)


def check_density(program: Program, guide: dict[str, dict], key: Any) -> None:
    """Raise UnsupportedMoments for dropped weights, and for points that no draw determines."""
    for site in _samples(guide):
        if (dropped := dropout_posterior(site["fn"])) is not None:
            raise no_density(dropped.design.site)
    points = [site["name"] for site in _samples(guide) if _is_point(site["fn"])]
    if not points:
        return
    unkeyed = program.sharing(key).guide  # draws of subsamples do not count as draws of a site

    def values(key: Any) -> dict[str, Any]:
        seeded = handlers.substitute(handlers.seed(unkeyed, key), data=program.parameters)
        with handlers.block():
            trace = handlers.trace(seeded).get_trace(*program.args, **program.kwargs)
        return {name: trace[name]["value"] for name in points}

    for name, origins in eval_provenance(values, key=key).items():
        if not origins:
            raise point_without_density(name)


def log_ratio(traces: Traces, plates: DataPlates) -> jax.Array:
    """Return log p − log q of all sites, each datum's share of it: [data plates]."""
    ours, theirs = (_shares(sites, plates) for sites in (traces.model, traces.guide))
    return ours - theirs


def _shares(sites: dict[str, dict], plates: DataPlates) -> jax.Array:
    shares = (
        plates.share_per_datum(_log_prob(site), site["scale"], site["plates"])
        for site in _samples(sites)
    )
    return sum(shares, start=jnp.zeros(()))


def _samples(sites: dict[str, dict]) -> list[dict]:
    return [site for site in sites.values() if site["type"] == "sample"]


def _log_prob(site: dict) -> jax.Array:
    """Return the log-density of a draw; flows without inverse keep what it needs."""
    known = (site["intermediates"],) if site["intermediates"] else ()
    return site["fn"].log_prob(site["value"], *known)
