"""A function run with each of many draws, some at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.criticism.containers.draws import Arrays
from numpyro_moments.evaluation.precision import Precision

AT_ONCE = 2**24  # numbers of all draws that are evaluated together


class Each:
    """Runs functions of one draw for all of them, compiled once for draws of the same number.

    Args:
        key: for what is drawn.
        precision: in which they run.
        batch_size: draws at once; None for what fits into memory.
        inputs: numbers that the functions read besides the draws.
    """

    def __init__(self, key: Any, precision: Precision, batch_size: int | None, inputs: int) -> None:
        self.key, self.precision, self.batch_size, self.inputs = key, precision, batch_size, inputs
        self._compiled: dict[tuple[str, int], Callable] = {}

    def __call__(
        self, name: str, function: Callable, values: Arrays, count: int | None = None
    ) -> Any:
        """What a function tells of all draws, in arrays of NumPy.

        Args:
            name: of the function, always the same for the same.
            function: of one draw by site and a key.
            values: draws by site, [draws, ...].
            count: how many, where there are no values.
        """
        with self.precision():
            given = {site: jnp.asarray(value) for site, value in values.items()}
            count = count or len(next(iter(given.values())))
            keys = jax.random.split(self.key, count)
            if (name, count) not in self._compiled:
                first = {site: value[0] for site, value in given.items()}
                size = min(count, self.batch_size or self._fitting(function, first))
                mapped = partial(jax.lax.map, lambda pair: function(*pair), batch_size=size)
                self._compiled[name, count] = jax.jit(mapped)
            return jax.tree.map(np.asarray, self._compiled[name, count]((given, keys)))

    def _fitting(self, function: Callable, first: Mapping[str, Any]) -> int:
        shapes = jax.tree.leaves(jax.eval_shape(function, first, self.key))
        largest = max([self.inputs, *(value.size for value in first.values())])
        return max(1, AT_ONCE // (sum(leaf.size for leaf in shapes) + 10 * largest))
