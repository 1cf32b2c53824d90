"""Select the latent draws in a trace, and compute its log density."""

from __future__ import annotations

import jax
import jax.numpy as jnp

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
