"""A loop of JAX over random values: its steps one by one, or as a loop that carries moments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.operations.shapes.indexing import index
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import Gaussian
from moment_calculus.values.support import overlap, selected
from numpyro_moments.rules.programs.carried import SeenThrough
from numpyro_moments.rules.programs.loop_plan import Plan
from numpyro_moments.rules.table import is_random


@dataclass(frozen=True)
class Loop:
    """A ``scan`` equation with its operands.

    Args:
        interpreter: evaluates the steps.
        body: closed jaxpr of one step.
        constants: operands that every step reads.
        initial: operands that the first step gets, and hands on.
        slices: operands of which every step reads one element of the leading axis.
        length: number of steps.
        reverse: whether the last element comes first.
        unroll: as of :func:`jax.lax.scan`.
    """

    interpreter: Any
    body: Any
    constants: list[Any]
    initial: list[Any]
    slices: list[Any]
    length: int
    reverse: bool
    unroll: Any

    @classmethod
    def of(cls, interpreter: Any, equation: Any, operands: list[Any]) -> Loop:
        """The loop of an equation.

        Args:
            interpreter: the interpreter.
            equation: of the primitive ``scan``.
            operands: its operands.
        """
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
        """The random operands."""
        return list(filter(is_random, (*self.constants, *self.initial, *self.slices)))

    @property
    def stacked(self) -> list[jax.ShapeDtypeStruct]:
        """Shapes of the results that are stacked."""
        avals = self.body.out_avals[len(self.initial) :]
        return [jax.ShapeDtypeStruct((self.length, *aval.shape), aval.dtype) for aval in avals]

    def step(self, carried: Sequence[Any], step: int) -> tuple[list[Any], list[Any]]:
        """One step: what it hands on, and what it adds to the stacked results.

        Args:
            carried: what the step before hands on.
            step: its number, from zero.
        """
        place = self.length - 1 - step if self.reverse else step
        sliced = [index(_readable(part), place) for part in self.slices]
        return self.evaluate(self.constants, carried, sliced)

    def evaluate(
        self, constants: Sequence[Any], carried: Sequence[Any], sliced: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """The same for given operands."""
        operands = (*constants, *carried, *sliced)
        results = self.interpreter.evaluate(self.body.jaxpr, self.body.consts, operands)
        return results[: len(self.initial)], results[len(self.initial) :]

    def plan(self, carried: list[Any], step: int, length: int) -> Plan | None:
        """How some steps run as one loop of JAX; None if that loses something.

        Args:
            carried: what is handed to the first of these steps.
            step: its number.
            length: how many of them there are.
        """
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
            return None  # which taking the steps one by one avoids, or explains


def _readable(part: Any) -> Any:
    """Integers that are known keep being known when they are read, as places in other arrays."""
    known = not is_random(part) and not isinstance(part, jax.core.Tracer)
    return np.asarray(part) if known and jnp.issubdtype(part.dtype, np.integer) else part


def _apart(values: Iterable[Any]) -> bool:
    """Whether no two random values depend on each other."""
    return not any(overlap(x, y) for x, y in combinations(filter(is_random, values), 2))


def _splits(value: Any) -> bool:
    """Whether the elements of the leading axis are independent of each other."""
    return not is_random(value) or (isinstance(value, Gaussian) and selected(value, 0) is not None)
