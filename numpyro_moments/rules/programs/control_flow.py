"""Rules of loops and branches: ``jax.lax.scan``, ``cond``, ``switch``, ``while_loop``."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.numerics import private_apis
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Composite, Deferred, Gaussian, overlap, support_of_index
from numpyro_moments.rules.programs.loop_plan import Plan, SeenThrough
from numpyro_moments.rules.table import is_random, program_rule


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
        first, second = _counts(parameters)
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
        """Evaluate a step; return what it carries on, and what is stacked."""
        index = self.length - 1 - step if self.reverse else step
        sliced = [ops.index(_readable(part), index) for part in self.slices]
        return self.evaluate(self.constants, carried, sliced)

    def evaluate(
        self, constants: Sequence[Any], carried: Sequence[Any], sliced: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Evaluate a step with given operands."""
        operands = (*constants, *carried, *sliced)
        results = self.interpreter.run_open(self.body.jaxpr, self.body.consts, operands)
        return results[: len(self.initial)], results[len(self.initial) :]

    def plan(self, carried: list[Any], step: int, length: int) -> Plan | None:
        """Return how ``length`` steps run as one JAX loop; None if that loses."""
        drawn = any(map(self.interpreter.has_local_rule, self.body.jaxpr.eqns))
        if drawn or not all(map(_splits, self.slices)):
            return None
        first = self.length - step - length if self.reverse else step
        slices = [ops.index(part, slice(first, first + length)) for part in self.slices]
        if not _apart((*self.constants, *carried, *slices)):
            return None
        try:
            return Plan.of(self, carried, slices, length).complete()
        except (SeenThrough, UnsupportedMoments):
            return None  # single steps avoid the error, or explain it


def _counts(parameters: Any) -> tuple[int, int]:
    """Return how many operands of a ``scan`` are constants, and how many are carried on."""
    if "ft_in" in parameters:  # since JAX 0.11
        constants, carried, _ = parameters["ft_in"].unpack()
        return len(constants), len(carried)
    return parameters["num_consts"], parameters["num_carry"]


def _readable(operand: Any) -> Any:
    """Return a part; known integers as NumPy arrays, which may be indices."""
    known = not is_random(operand) and not private_apis.is_traced(operand)
    return np.asarray(operand) if known and jnp.issubdtype(operand.dtype, np.integer) else operand


def _apart(values: Iterable[Any]) -> bool:
    """Return whether no two random values depend on each other."""
    return not any(overlap(x, y) for x, y in combinations(filter(is_random, values), 2))


def _splits(value: Any) -> bool:
    """Return whether the elements of the leading axis are independent of each other."""
    return not is_random(value) or (
        isinstance(value, Gaussian) and support_of_index(value, 0) is not None
    )


LIMIT = 256
"""Steps of a loop that are taken one by one where the dependence between them requires it."""

SETTLING = 3  # steps until a value that enters a loop has the form that it keeps


@program_rule("scan")
def scan(interpreter: Any, equation: Any, operands: list[Any]) -> list[Any]:
    """Serve ``jax.lax.scan``, ``fori_loop`` with known bounds and ``map``.

    If steps depend on each other only by what they carry, the first ones are evaluated
    one by one and the others as a JAX loop that carries moments. If they share a random
    constant, or stack random results, which depend on each other, all are evaluated one
    by one, up to :data:`LIMIT`.
    """
    loop = Loop.of(interpreter, equation, operands)
    # Steps that are evaluated one by one make the compiled program long: 10, 40 and 100
    # steps of a random walk are 180, 580 and 1400 operations in diagonal mode, 10 steps
    # with a random scale 2000. Of longer loops the dependence between stacked results is
    # not known: combining them is not supported, or gives a warning for sums.
    carried, pieces, step = loop.initial, [], 0
    while step < loop.length:
        plan = _plan(loop, carried, step)
        if plan is None:
            _check_length(loop, step)
            carried, results = loop.step(carried, step)
        else:
            carried, results = plan.run()
        pieces.append((plan is not None, results))
        step += plan.length if plan else 1
    return [*carried, *_assembled(loop, pieces[::-1] if loop.reverse else pieces)]


def _plan(loop: Loop, carried: list[Any], step: int) -> Any:
    """Return how all further steps but the last run as a JAX loop; None if they do not."""
    # The last step is evaluated by itself, so that as much is known of its results as of
    # others.
    length = loop.length - step - 1
    if length < 2 or step > SETTLING:
        return None
    plan = loop.plan(carried, step, length)
    return None if plan is None or (plan.stacks_random and loop.length <= LIMIT) else plan


def _check_length(loop: Loop, step: int) -> None:
    if loop.length <= LIMIT or step < SETTLING or step == loop.length - 1:
        return
    raise UnsupportedMoments(
        f"a loop of {loop.length} steps that depend on each other by more than the mean and "
        f"variance they carry; up to {LIMIT} steps are evaluated one by one",
        sites=frozenset().union(*(value.sites for value in loop.random)),
        remedy="let every step read its own slice of the latent sites (the second argument of "
        "jax.lax.scan), carry one random array, write a chain of states by slices of one site "
        "(z[1:] - a * z[:-1]), take fewer steps, or draw the sites by naming them in "
        "sample_sites=",
    )


def _assembled(loop: Loop, pieces: list[tuple[bool, list[Any]]]) -> list[Any]:
    """Return the stacked results of single steps and of a JAX loop among them."""
    results = []
    for index, shape in enumerate(loop.stacked):
        parts: list[Any] = [] if pieces else [jnp.zeros(shape.shape, shape.dtype)]
        for stacked, group in itertools.groupby(pieces, key=operator.itemgetter(0)):
            values = [piece[index] for _, piece in group]
            parts += values if stacked else [_stacked(values, len(shape.shape))]
        results.append(_joined(parts))
    return results


def _stacked(parts: list[Any], rank: int) -> Any:
    if not any(map(is_random, parts)):
        return jnp.stack(parts)
    parts = list(map(_understood, parts))
    if ops.same_function(parts):  # keeps a positive scale recognisable
        return Deferred(ops.stack([part.base for part in parts], -rank), parts[0].function)
    return ops.stack(parts, -rank)


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if any(map(is_random, parts)):
        return ops.concatenate(parts, -len(parts[0].shape))
    return jnp.concatenate(parts)


@program_rule("cond")
def cond(interpreter: Any, equation: Any, operands: list[Any]) -> list[Any]:
    """Serve ``jax.lax.cond`` and ``switch`` by a certain choice; raise for a random one."""
    choice, *inputs = operands
    branches = equation.params["branches"]
    if is_random(choice):
        raise UnsupportedMoments(
            "the program branches on a random value",
            sites=choice.sites,
            remedy="compute both results and combine them by an activation such as jax.nn.relu or "
            "jnp.heaviside, or draw the sites by naming them in "
            "sample_sites=",
        )
    if not private_apis.is_traced(choice):
        chosen = branches[int(np.clip(int(choice), 0, len(branches) - 1))]
        return interpreter.run_open(chosen.jaxpr, chosen.consts, inputs)
    # A choice that is not known: all branches are evaluated, as under jax.vmap.
    results = [interpreter.run_open(one.jaxpr, one.consts, inputs) for one in branches]
    return [_selected(choice, alternatives) for alternatives in zip(*results, strict=True)]


def _selected(choice: Any, alternatives: tuple[Any, ...]) -> Any:
    """Return one of the alternatives, of which some may be certain."""
    if any(map(is_random, alternatives)):
        parts = [_understood(part) for part in alternatives]
        return ops.pick_components(lambda *arrays: _select(choice, arrays), parts)
    return _select(choice, alternatives)


def _understood(operand: Any) -> Any:
    """Return moments in place of functions of logits, and arrays in place of numbers."""
    if isinstance(operand, Composite):
        return operand.gaussian()
    return operand if is_random(operand) else jnp.asarray(operand)


def _select(choice: Any, arrays: tuple[Any, ...]) -> Any:
    shape = jnp.broadcast_shapes(*map(jnp.shape, arrays))
    which = choice.astype(bool) if len(arrays) == 2 else jnp.clip(choice, 0, len(arrays) - 1)
    return jax.lax.select_n(which, *(jnp.broadcast_to(array, shape) for array in arrays))


@program_rule("while")
def while_loop(interpreter: Any, equation: Any, operands: list[Any]) -> list[Any]:
    """Raise for ``jax.lax.while_loop``, and for ``fori_loop`` with bounds that are not known."""
    raise UnsupportedMoments(
        "a while loop over random values: the number of its steps is random or not known",
        remedy="use jax.lax.fori_loop with bounds that are Python integers, or jax.lax.scan"
        + errors.OR_DRAW,
    )
