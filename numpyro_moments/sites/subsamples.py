"""Run plates that a model subsamples with all their elements."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import jax.numpy as jnp
from numpyro.primitives import Messenger


class DrawnSubsamples(Messenger):
    """Collects the plates that draw a subsample, with its size and theirs; a context."""

    def __init__(self) -> None:
        super().__init__(None)
        self.plates: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> DrawnSubsamples:
        """Return the context itself, unlike NumPyro's handlers."""
        super().__enter__()
        return self

    def process_message(self, msg: Any) -> None:
        """Note a plate whose elements no other handler has chosen."""
        if msg["type"] == "plate" and msg["value"] is None:
            size, part = msg["args"]
            self.plates[msg["name"]] = part, size


class Whole(Messenger):
    """Gives plates all their elements if the model takes a subsample; also a context."""

    def __init__(
        self,
        fn: Callable | None = None,
        sizes: Collection[int] | None = None,  # of plates that draw a subsample; None: of all
    ) -> None:
        super().__init__(fn)
        self.sizes = sizes
        self.enlarged: dict[str, tuple[int, int]] = {}  # sizes of subsample and plate

    def process_message(self, msg: Any) -> None:
        """Take all elements of a plate."""
        if msg["type"] == "plate":
            size, part = msg["args"]
            if self.sizes is not None and (size not in self.sizes or msg["value"] is not None):
                return
            if part is not None and part != size:
                self.enlarged[msg["name"]] = part, size
            msg["args"], msg["value"] = (size, size), jnp.arange(size)
