"""Sites of a trace, and their log density."""

from __future__ import annotations

import jax
import jax.numpy as jnp

TERMS = 256  # terms of a log density that are summed in the precision of the draws


def is_latent_draw(site: dict) -> bool:
    """Whether a site of a guide is one of the model's, not an auxiliary one.

    Args:
        site: of a trace.
    """
    is_sample = site["type"] == "sample" and not site["is_observed"]
    return is_sample and not site["infer"].get("is_auxiliary")


def log_density(trace: dict) -> jax.Array:
    """Log density of all sites of a trace, with their scales and masks, in parts.

    Of 10⁵ data a single number of single precision would lose hundredths of nats.

    Args:
        trace: of model or guide.

    Returns:
        Sums over some elements, [parts], of which the sum is to be taken in double precision.
    """
    sites = [site for site in trace.values() if site["type"] == "sample"]
    return jnp.concatenate([jnp.zeros(1), *map(_partial_sums, sites)])


def _partial_sums(site: dict) -> jax.Array:
    known = (site["intermediates"],) if site["intermediates"] else ()
    density = site["fn"].log_prob(site["value"], *known)
    flat = jnp.ravel(density if site["scale"] is None else site["scale"] * density)
    return jnp.pad(flat, (0, -len(flat) % TERMS)).reshape(-1, TERMS).sum(-1)
