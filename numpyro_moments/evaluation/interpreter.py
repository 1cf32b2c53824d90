"""Evaluate a jaxpr with moments: moment rules evaluate equations with random operands.

JAX traces a program once; the jaxpr lists its primitives. Equations without
random operands are evaluated as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.numerics import private_apis
from moment_calculus.operations import catalogue as ops
from numpyro_moments._host import ClosedJaxpr, Jaxpr, apply_equation
from numpyro_moments.evaluation import user_line
from numpyro_moments.evaluation.index_arrays import IndexArrays
from numpyro_moments.rules.table import INLINED, PARTS, PROGRAMS, RANDOM, RULES, is_random


class ConstantNumbers:
    """Arrays known to hold one number; rules recognise functions by such constants."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, float]] = {}  # array, kept alive for its id, and number

    def copy(self) -> ConstantNumbers:
        """Return a copy, to which numbers can be added separately."""
        numbers = ConstantNumbers()
        numbers._known = dict(self._known)
        return numbers

    def propagate(self, source: Any, result: Any) -> None:
        """Note that a result holds the number of its source, if that is known."""
        number = self.number_of(source)
        if isinstance(number, int | float):
            self._known[id(result)] = result, number

    def number_of(self, operand: Any) -> Any:
        """Return the known number that an operand holds, else the operand."""
        if id(operand) in self._known:
            return self._known[id(operand)][1]
        return operand if is_random(operand) else _as_number(operand)


def _as_number(operand: Any) -> Any:
    known = isinstance(operand, np.ndarray | np.generic | jax.Array)
    if not known or private_apis.is_traced(operand) or np.ndim(operand):
        return operand
    return operand.item() if jnp.issubdtype(operand.dtype, jnp.number) else operand


# Primitives that change the shape or dtype of a known number, which stays known.
_SHAPE_PRIMITIVES = frozenset(
    "broadcast_in_dim convert_element_type copy reshape squeeze stop_gradient".split()
)

_LARGEST_INDEX = 2**20  # elements of an index array that is computed at trace time


class Interpreter:
    """Evaluates jaxprs with moments."""

    def __init__(
        self, rules: Mapping[str, Callable] | None = None, output_sites: Sequence[str] = ()
    ) -> None:
        self.local_rules = frozenset(rules or {})  # primitives with rules of this program only
        self.rules = {**RULES, **(rules or {})}
        self.output_sites = output_sites  # of each output, or an empty string; for messages
        self.numbers = ConstantNumbers()
        self.indices = IndexArrays()
        self.calls: list[Any] = []  # enclosing equations, the outermost first
        self.program: Jaxpr | None = None  # the program that runs, without dead code

    @contextlib.contextmanager
    def loop_body(self) -> Iterator[None]:
        """Isolate known numbers in a JAX loop body; its traced values must not escape."""
        outer = self.numbers, self.indices
        self.numbers, self.indices = self.numbers.copy(), IndexArrays()
        try:
            yield
        finally:
            self.numbers, self.indices = outer

    def has_local_rule(self, equation: Any) -> bool:
        """Return whether an equation, or one inside, has a rule of this program only."""
        if not self.local_rules:
            return False
        return not self.local_rules.isdisjoint(private_apis.primitives_in([equation]))

    def run_closed(self, program: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
        """Evaluate a closed jaxpr: return an array or a random value for each output."""
        return self.run_open(program.jaxpr, program.consts, operands)

    def run_open(self, jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Evaluate an open jaxpr with its constants."""
        return list(map(self.resolved, self.run_inline(jaxpr, consts, operands)))

    def resolved(self, output: Any) -> Any:
        """Return an output on its own, for rules that know nothing of parts."""
        return ops.resolved(output)

    def moments_or_refused(
        self, equation: Any, operands: Sequence[Any], compute: Callable[[], list[Any]]
    ) -> list[Any]:
        """Return the results of an equation; a subclass takes those that are refused."""
        return compute()

    def run_inline(self, jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Evaluate an open jaxpr inside another; keep unresolved parts of composites."""
        live = private_apis.without_dead_code(jaxpr)
        if not self.calls:
            self.program = live
        return self.run_live(live, consts, operands)

    def run_live(self, live: Jaxpr, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Evaluate an open jaxpr without dead code."""
        return _Frame(self, live, consts, operands).evaluate()

    def record(self, equation: Any, results: Sequence[Any]) -> None:
        """Do nothing; a subclass records the results of an equation on random operands."""


class _Frame:
    """The values of the variables of one jaxpr."""

    def __init__(self, interpreter: Interpreter, jaxpr: Any, consts: Any, operands: Any) -> None:
        self.interpreter, self.jaxpr = interpreter, jaxpr
        self.values = dict(zip(jaxpr.constvars, consts, strict=True))
        self.values.update(zip(jaxpr.invars, operands, strict=True))

    def evaluate(self) -> list[Any]:
        for equation in self.jaxpr.eqns:
            operands = [self._read(operand) for operand in equation.invars]
            has_local_rule = self.interpreter.has_local_rule(equation)
            has_moments = any(map(is_random, operands))
            is_empty = not any([output.aval.size for output in equation.outvars])
            if has_moments and not has_local_rule and is_empty and equation.outvars:
                results = [_empty_array(output) for output in equation.outvars]
            elif has_moments or has_local_rule:
                results = self.interpreter.moments_or_refused(
                    equation, operands, partial(self._evaluate_moments, equation, operands)
                )
                self.interpreter.record(equation, results)
            else:
                results = self._evaluate_plain(equation, operands)
            self.values.update(zip(equation.outvars, results, strict=True))
        return [self._read(output) for output in self.jaxpr.outvars]

    def _read(self, variable: Any) -> Any:
        value = private_apis.read(variable, self.values)
        is_empty = isinstance(value, RANDOM) and variable.aval.size == 0
        return _empty_array(variable) if is_empty else value

    def _evaluate_plain(self, equation: Any, operands: list[Any]) -> list[Any]:
        results = self.interpreter.indices.evaluate(equation, operands, self._folded)
        if equation.primitive.name in _SHAPE_PRIMITIVES and operands:
            self.interpreter.numbers.propagate(operands[0], results[0])
        return results

    @staticmethod
    def _folded(equation: Any, operands: list[Any]) -> list[Any]:
        with _constant_folding(equation, operands):
            return apply_equation(equation, operands)

    def _evaluate_moments(self, equation: Any, operands: list[Any]) -> list[Any]:
        result = self._located(equation, partial(self._apply, equation, operands), operands)
        return list(result) if equation.primitive.multiple_results else [result]

    def _located(self, equation: Any, apply: Callable[[], Any], operands: Sequence[Any]) -> Any:
        """Apply a rule for an equation; warnings and errors name its line."""
        interpreter = self.interpreter
        try:
            with errors.at_line(lambda: user_line.line_of(equation, interpreter.calls)):
                return apply()
        except UnsupportedMoments as error:
            raise user_line.located(error, equation, operands, interpreter) from None

    def _apply(self, equation: Any, operands: list[Any]) -> Any:
        name = equation.primitive.name
        if name in PROGRAMS:
            return self._call_program(PROGRAMS[name], equation, operands)
        rule = self.interpreter.rules.get(name)
        # A rule with ``numbers = False`` wants its constants as arrays.
        if getattr(rule, "numbers", True) and _keeps_shape(equation, operands):
            operands = list(map(self.interpreter.numbers.number_of, operands))
        if name == "gather":
            operands[1] = self.interpreter.indices.columns_of(operands[1])
        if name in PARTS and name not in self.interpreter.local_rules:
            part = PARTS[name](partial(self._plain, equation), *operands, **equation.params)
            if part is not None:
                return self._defer(equation, part)
        return self._plain(equation, *operands)

    def _plain(self, equation: Any, *operands: Any) -> Any:
        """Apply an equation's moment rule to resolved operands."""
        operands = tuple(map(ops.resolved, operands))
        rule = self.interpreter.rules.get(equation.primitive.name)
        if rule is None:
            raise _no_rule(equation.primitive.name, operands)
        return rule(*operands, **equation.params)

    def _defer(self, equation: Any, result: Any) -> Any:
        """Defer a composite's part; its errors name this equation's line."""
        if not isinstance(result, ops.Symbolic):
            return result
        calls = list(self.interpreter.calls)

        def compute(plain: Callable[[], Any]) -> Any:
            current, self.interpreter.calls = self.interpreter.calls, calls
            try:
                return self._located(equation, plain, ())
            finally:
                self.interpreter.calls = current

        return result.wrap_fallback(compute)

    def _call_program(self, rule: Callable, equation: Any, operands: list[Any]) -> Any:
        if equation.primitive.name not in INLINED:
            operands = list(map(ops.resolved, operands))
        self.interpreter.calls.append(equation)
        try:
            return rule(self.interpreter, equation, operands)
        finally:
            self.interpreter.calls.pop()


def _empty_array(variable: Any) -> jax.Array:
    return jnp.zeros(variable.aval.shape, variable.aval.dtype)


def _constant_folding(equation: Any, operands: list[Any]) -> Any:
    """Return a context that evaluates small constants at trace time."""
    unknown = any(private_apis.is_traced(operand) for operand in operands)
    small = all(map(_is_small, (*equation.invars, *equation.outvars)))
    if unknown or not small or not operands:
        return contextlib.nullcontext()
    return jax.ensure_compile_time_eval()


def _is_small(variable: Any) -> bool:
    """Return whether a variable is a number or an index array."""
    # Rules must see whether an index array repeats an element.
    index = (
        not jnp.issubdtype(variable.aval.dtype, jnp.inexact)
        and variable.aval.size <= _LARGEST_INDEX
    )
    return index or variable.aval.size <= 1


def _keeps_shape(equation: Any, operands: Sequence[Any]) -> bool:
    """Return whether a random operand has the shape of the result."""
    shapes = {output.aval.shape for output in equation.outvars}
    return any([{part.shape} >= shapes for part in operands if isinstance(part, RANDOM)])


def _no_rule(name: str, operands: Sequence[Any]) -> UnsupportedMoments:
    return UnsupportedMoments(
        "no moment rule for this primitive on random values",
        sites=frozenset().union(*(o.sites for o in operands if is_random(o))),
        remedy="use supported operations, register a rule with "
        f"@numpyro_moments.moment_rule({name!r}), or draw the latent sites by naming them in "
        "sample_sites=",
    )
