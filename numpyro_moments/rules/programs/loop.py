"""A loop of JAX over random values: its steps one by one, or a JAX loop that carries moments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.private_apis import is_traced
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.values import Gaussian
from moment_calculus.values.spread import overlap, support_of_index
from numpyro_moments.rules.programs.carried import SeenThrough
from numpyro_moments.rules.programs.loop_plan import Plan
from numpyro_moments.rules.table import is_random


@dataclass(frozen=True)
class Loop:
    """A ``scan`` equation with its operands."""

    interpreter: Any
    body: Any  # closed jaxpr of one step
    constants: list[Any]  # operands that every step reads
    initial: list[Any]  # operands that the first step gets, and carries on
    slices: list[Any]  # operands of which every step reads one element of the leading axis
    length: int  # number of steps
    reverse: bool  # whether the last element comes first
    unroll: Any  # as in jax.lax.scan

    @classmethod
    def of(cls, interpreter: Any, equation: Any, operands: list[Any]) -> Loop:
        """Return the loop of a ``scan`` equation."""
        parameters = equation.params
        first, second = parameters["num_consts"], parameters["num_carry"]
        return cls(
            interpreter,
            parameters["jaxpr"],
            operands[:first],
            operands[first : first + second],
            operands[first + second :],
            parameters["length"],
            parameters["reverse"],
            parameters["unroll"],
        )

    @property
    def random(self) -> list[Any]:
        """Return the random operands."""
        return list(filter(is_random, (*self.constants, *self.initial, *self.slices)))

    @property
    def stacked(self) -> list[jax.ShapeDtypeStruct]:
        """Return the shapes of the stacked results."""
        avals = self.body.out_avals[len(self.initial) :]
        return [jax.ShapeDtypeStruct((self.length, *aval.shape), aval.dtype) for aval in avals]

    def step(self, carried: Sequence[Any], step: int) -> tuple[list[Any], list[Any]]:
        """Evaluate a step; return what it carries on, and its elements of the stacked results."""
        place = self.length - 1 - step if self.reverse else step
        sliced = [index(_readable(part), place) for part in self.slices]
        return self.evaluate(self.constants, carried, sliced)

    def evaluate(
        self, constants: Sequence[Any], carried: Sequence[Any], sliced: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Evaluate a step with given operands."""
        operands = (*constants, *carried, *sliced)
        results = self.interpreter.evaluate(self.body.jaxpr, self.body.consts, operands)
        return results[: len(self.initial)], results[len(self.initial) :]

    def plan(self, carried: list[Any], step: int, length: int) -> Plan | None:
        """Return how ``length`` steps run as one JAX loop; None if that loses something."""
        drawn = any(map(self.interpreter.holds_own, self.body.jaxpr.eqns))
        if drawn or not all(map(_splits, self.slices)):
            return None
        first = self.length - step - length if self.reverse else step
        slices = [index(part, slice(first, first + length)) for part in self.slices]
        if not _apart((*self.constants, *carried, *slices)):
            return None
        try:
            return Plan.of(self, carried, slices, length).complete()
        except (SeenThrough, UnsupportedMoments):
            return None  # single steps avoid the error, or explain it


def _readable(part: Any) -> Any:
    """Return a part; known integers as NumPy arrays, so that elements stay known as indices."""
    known = not is_random(part) and not is_traced(part)
    return np.asarray(part) if known and jnp.issubdtype(part.dtype, np.integer) else part


def _apart(values: Iterable[Any]) -> bool:
    """Return whether no two random values depend on each other."""
    return not any(overlap(x, y) for x, y in combinations(filter(is_random, values), 2))


def _splits(value: Any) -> bool:
    """Return whether the elements of the leading axis are independent of each other."""
    return not is_random(value) or (
        isinstance(value, Gaussian) and support_of_index(value, 0) is not None
    )
