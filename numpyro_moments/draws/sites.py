"""The sites of one run with draws, and runs in which plates have all their elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.primitives import Messenger

from moment_calculus.criticism.model_with_draws import part_of_plate
from moment_calculus.response.problem import plate_axes
from numpyro_moments.sites.traces import is_factor

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


class Whole(Messenger):
    """Gives plates all their elements if the model takes a subsample; also a context."""

    def __init__(self, fn: Callable | None = None) -> None:
        super().__init__(fn)
        self.enlarged: dict[str, tuple[int, int]] = {}  # sizes of subsample and plate

    def process_message(self, msg: Any) -> None:
        """Take all elements of a plate."""
        if msg["type"] == "plate":
            size, part = msg["args"]
            if part is not None and part != size:
                self.enlarged[msg["name"]] = part, size
            msg["args"], msg["value"] = (size, size), jnp.arange(size)


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
                raise part_of_plate(name, *enlarged[name], f"in site '{site['name']}'")


def is_observed(site: dict) -> bool:
    """Return whether a site is observed, and no factor."""
    return site["type"] == "sample" and site["is_observed"] and not is_factor(site)
