"""Plates that a model subsamples, with all their elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import ExpandedDistribution, MaskedDistribution
from numpyro.primitives import Messenger

from moment_calculus.criticism.containers.wording import part_of_plate
from moment_calculus.response.data import plates_of
from numpyro_moments.prediction.predict import is_factor


class Whole(Messenger):
    """Gives plates all their elements, where the model takes a subsample.

    Args:
        fn: the program; None where it is a context.
    """

    def __init__(self, fn: Callable | None = None) -> None:
        super().__init__(fn)
        self.enlarged: dict[str, tuple[int, int]] = {}  # those of which it takes a part

    def process_message(self, msg: Any) -> None:
        """Take all of a plate."""
        if msg["type"] == "plate":
            size, part = msg["args"]
            if part is not None and part != size:
                self.enlarged[msg["name"]] = part, size
            msg["args"], msg["value"] = (size, size), jnp.arange(size)


def whole_value(site: dict) -> jax.Array:
    """The value of a site, of the shape of its distribution where that is larger.

    Args:
        site: of a trace.
    """
    value = jnp.asarray(site["value"])
    if site["type"] != "sample":
        return value
    batch = value.shape[: value.ndim - len(site["fn"].event_shape)]
    shape = jnp.broadcast_shapes(site["fn"].batch_shape, batch)
    return jnp.broadcast_to(value, shape + value.shape[len(batch) :])


def check_whole(enlarged: Mapping[str, tuple[int, int]], trace: dict) -> None:
    """Refuse observations of a part of a plate.

    Args:
        enlarged: sizes of the part and of the whole by plate.
        trace: of the model.

    Raises:
        ValueError: naming plate and site.
    """
    for site in filter(is_observed, trace.values()) if enlarged else ():
        shape, event = jnp.shape(site["value"]), len(site["fn"].event_shape)
        for name in plates_of(site).keys() & enlarged.keys():
            dim, size = plates_of(site)[name]
            if len(shape) < event - dim or shape[dim - event] != size:
                raise part_of_plate(name, *enlarged[name], f"in site '{site['name']}'")


def is_observed(site: dict) -> bool:
    """Whether a site is observed, and no factor.

    Args:
        site: of a trace.
    """
    return site["type"] == "sample" and site["is_observed"] and not is_factor(site)


def hidden(site: dict) -> int:
    """How many elements of the batch of a site a mask hides.

    Args:
        site: of a trace.
    """
    fn, shown = site["fn"], np.ones(site["fn"].batch_shape, bool)
    while isinstance(fn, (MaskedDistribution, ExpandedDistribution)):
        if isinstance(fn, MaskedDistribution):
            shown = shown & np.asarray(fn._mask)
        fn = fn.base_dist
    return int(np.sum(~shown))
