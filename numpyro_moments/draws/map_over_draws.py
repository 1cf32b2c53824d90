"""Run a function on each of many draws, several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.criticism.draws import Arrays
from numpyro_moments.evaluation.precision import Precision

NUMBERS_PER_BATCH = 2**24  # numbers that are computed together, over all draws


class Each:
    """Runs functions of one draw for all draws, compiled once for each function and count."""

    def __init__(self, key: Any, precision: Precision, batch_size: int | None, inputs: int) -> None:
        # Without a batch size, as many draws run at once as fit into memory; ``inputs``
        # is the size of the largest array that the functions read besides the draws.
        self.key, self.precision, self.batch_size, self.inputs = key, precision, batch_size, inputs
        self._compiled: dict[tuple[str, int], Callable] = {}

    def __call__(
        self, name: str, function: Callable, values: Arrays, count: int | None = None
    ) -> Any:
        """Return the results of a function for draws [draws, ...] by site, as arrays of NumPy.

        The name identifies the function, which takes one draw by site and a key. A count
        is needed if there are no draws.
        """
        with self.precision():
            given = {site: jnp.asarray(value) for site, value in values.items()}
            count = count or len(next(iter(given.values())))
            keys = jax.random.split(self.key, count)
            if (name, count) not in self._compiled:
                first = {site: value[0] for site, value in given.items()}
                size = min(count, self.batch_size or self._batch_size(function, first))
                mapped = partial(jax.lax.map, lambda pair: function(*pair), batch_size=size)
                self._compiled[name, count] = jax.jit(mapped)
            return jax.tree.map(np.asarray, self._compiled[name, count]((given, keys)))

    def _batch_size(self, function: Callable, first: Mapping[str, Any]) -> int:
        shapes = jax.tree.leaves(jax.eval_shape(function, first, self.key))
        largest = max([self.inputs, *(value.size for value in first.values())])
        return max(1, NUMBERS_PER_BATCH // (sum(leaf.size for leaf in shapes) + 10 * largest))
