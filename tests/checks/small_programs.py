"""Programs of a few operations by NumPy: outside of jax.jit JAX compiles every operation by itself.

For tests whose claim does not depend on XLA. So are losses, slopes and a few steps of a
training, which the front end keeps; longer programs are compiled as they are for users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax._src import pjit
from jax._src.interpreters import pxla

from moment_calculus.numerics import distributions
from moment_calculus.numerics.execution import while_loop
from moment_calculus.numerics.private_apis import is_traced
from numpyro_moments.evaluation import programs
from tests.checks.jaxprs import FUNCTIONS, INNER, LOOPS, TooLong, at_most, evaluate
from tests.checks.scalar_primitives import as_keys, is_key

LARGEST = 30  # operations of a program that JAX would compile at once
MOST = 30_000  # operations of a program that the front end keeps, beyond which XLA is faster
NAME = "_pjit_call_impl_python"  # private; where JAX has none, everything is compiled
_compiled = getattr(pjit, NAME, None)
_lower = jax.stages.Traced.lower


def _operations(closed: Any) -> float:
    """How many there are; infinitely many where NumPy does not have one."""
    total = 0.0
    for equation in getattr(closed, "jaxpr", closed).eqns:
        inner = next((equation.params[name] for name in INNER if name in equation.params), None)
        name = equation.primitive.name
        if inner is not None and name != "scan":
            total += _operations(inner)
        else:
            total += 1 if name in FUNCTIONS else float("inf")
        if total > LARGEST:
            break
    return total


def _is_plain(argument: Any) -> bool:
    """Whether an argument is an array on one device."""
    return not isinstance(argument, jax.Array) or len(argument.sharding.device_set) == 1


def _as_array(value: Any, aval: Any) -> jax.Array:
    """Of JAX on its first device, with the weak type of a number of Python where it has one."""
    device = jax.devices()[0]
    numbers = np.array(value, aval.dtype, order="C")
    sharding = jax.sharding.SingleDeviceSharding(device)
    return pxla.batched_device_put(aval, sharding, [numbers], [device], committed=False)


def _evaluated(jaxpr: Any, arguments: Sequence, loops: bool) -> list:
    """The results of a program as arrays of JAX."""
    known = [given if is_key(jax.typeof(given)) else np.asarray(given) for given in arguments]
    with np.errstate(all="ignore"):
        results = evaluate(jaxpr, known, loops)
    outputs = [variable.aval for variable in jaxpr.jaxpr.outvars]
    return [
        as_keys(value) if is_key(aval) else _as_array(value, aval)
        for value, aval in zip(results, outputs, strict=True)
    ]


def _by_numpy(*arguments: Any, jaxpr: Any, **options: Any) -> Any:
    """What JAX's own function returns; without a compiled program, it asks again for every call."""
    plain = all(map(_is_plain, arguments)) and not any(options["donated_invars"])
    if not plain or jaxpr.effects or _operations(jaxpr) > LARGEST:
        return _compiled(*arguments, jaxpr=jaxpr, **options)
    return _evaluated(jaxpr, arguments, loops=False), None, None, []


class Kept:
    """A program that the front end keeps: by NumPy, or compiled where that takes too long.

    Which of the two depends on its arguments alone, and not on what was asked for before.
    """

    def __init__(self, function: Any, args: tuple, options: Any, runs: int = 1) -> None:
        self.traced = jax.jit(function, compiler_options=options).trace(*args)
        self.structure = jax.tree.structure(self.traced.out_info)
        self.long: set[tuple] = set()
        self.compiled: Any = None

    def __call__(self, *args: Any) -> Any:
        leaves = jax.tree.leaves(args)
        counts = tuple(leaf for leaf in leaves if isinstance(leaf, int))
        if counts not in self.long:
            try:
                return self._by_numpy(leaves)
            except TooLong:
                self.long.add(counts)
        if self.compiled is None:
            self.compiled = self.traced.lower().compile()
        return self.compiled(*args)

    def _by_numpy(self, leaves: list) -> Any:
        with at_most(MOST):
            results = _evaluated(self.traced.jaxpr, leaves, loops=True)
        return jax.tree.unflatten(self.structure, results)


def _traced(function: Any, state: Any) -> Any:
    """A function of a state, traced once."""
    traced = jax.jit(function).trace(state)
    structure = jax.tree.structure(traced.out_info)

    def run(state: Any) -> Any:
        results = _evaluated(traced.jaxpr, jax.tree.leaves(state), loops=True)
        return jax.tree.unflatten(structure, results)

    return run


def _by_steps(condition: Any, step: Any, state: Any) -> Any:
    """A loop whose step is traced once: JAX would begin every operation of every step anew."""
    leaves = jax.tree.leaves(state)
    if isinstance(leaves[0], jax.Array) and not any(map(is_traced, leaves)):
        condition, step = _traced(condition, state), _traced(step, state)
    return while_loop(condition, step, state)


@contextmanager
def by_numpy() -> Iterator[None]:
    """While it is entered, small or kept programs are not compiled."""
    kept = patch.object(programs, "_compile", Kept)
    loops = patch.object(distributions, "while_loop", _by_steps)
    with kept, loops, patch.object(pjit, NAME, _by_numpy) if _compiled else nullcontext():
        yield


def _is_for_jax(jaxpr: Any) -> bool:
    """Whether a program is one operation that NumPy does not have."""
    if len(jaxpr.eqns) != 1:
        return False
    (equation,) = jaxpr.eqns
    inner = any(name in equation.params for name in INNER)
    return not inner and equation.primitive.name not in {*FUNCTIONS, *LOOPS, "cond"}


def _equations(closed: Any) -> int:
    """How many a program has, those of loops and branches once."""
    total = 0
    for equation in getattr(closed, "jaxpr", closed).eqns:
        parts = [part for each in equation.params.values() for part in _as_tuple(each)]
        inner = [part for part in parts if hasattr(getattr(part, "jaxpr", part), "eqns")]
        total += 1 + sum(map(_equations, inner))
    return total


def _as_tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


WORTH = 100  # operations by NumPy for each of a program, which take half as long as to compile it


class _UntilCompiled:
    """Programs by NumPy, each until it would have been compiled in that time."""

    def __init__(self) -> None:
        self.left: dict[int, tuple[Any, int]] = {}  # programs, and operations by NumPy

    def results(self, jaxpr: Any, arguments: Sequence) -> list | None:
        """Of a program; nothing if it is to be compiled."""
        if id(jaxpr) not in self.left:
            self.left[id(jaxpr)] = jaxpr, WORTH * _equations(jaxpr)
        _, few = self.left[id(jaxpr)]
        with at_most(few) as left:
            try:
                return _evaluated(jaxpr, arguments, loops=True) if few > 0 else None
            except TooLong:
                return None
            finally:
                self.left[id(jaxpr)] = jaxpr, left[0]

    def call(self, *arguments: Any, jaxpr: Any, **options: Any) -> Any:
        """As _by_numpy, for programs of any size with loops and keys."""
        many = any(len(getattr(each, "devices", set)()) > 1 for each in arguments)
        if not (many or jaxpr.effects or _is_for_jax(jaxpr.jaxpr)):
            results = self.results(jaxpr, arguments)
            if results is not None:
                return results, None, None, []
        return _compiled(*arguments, jaxpr=jaxpr, **options)

    def lower(self, traced: Any, **_: Any) -> _Lowered:
        """Nothing yet."""
        return _Lowered(traced, self)


class _Lowered:
    """A traced program that is compiled when it has run often."""

    def __init__(self, traced: Any, programs: _UntilCompiled) -> None:
        self.traced = traced
        self.programs = programs
        self.structure = jax.tree.structure(traced.out_info)

    def compile(self, *_: Any, **__: Any) -> Any:
        """The function, with arrays of JAX."""
        return self

    def __call__(self, *given: Any) -> Any:
        results = self.programs.results(self.traced.jaxpr, jax.tree.leaves(given))
        if results is None:
            return self._compiled(*given)
        return jax.tree.unflatten(self.structure, results)

    @cached_property
    def _compiled(self) -> Any:
        return _lower(self.traced).compile()


@contextmanager
def large_by_numpy() -> Iterator[None]:
    """While it is entered, a program is compiled when it has run for as long as that takes.

    For tests whose claim is what scripts say and write.
    """
    programs = _UntilCompiled()
    calls = patch.object(pjit, NAME, programs.call) if _compiled else nullcontext()
    loops = patch.object(distributions, "while_loop", _by_steps)
    lowered = patch.object(jax.stages.Traced, "lower", lambda *a, **k: programs.lower(*a, **k))
    with calls, loops, lowered:
        yield
