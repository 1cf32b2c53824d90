"""Evaluates a jaxpr with moments: each equation on random operands is served by a moment rule.

A program is traced once, as JAX traces any program; its jaxpr lists what it does, primitive by
primitive. Equations whose operands are certain are evaluated as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core, source_info_util
from jax.interpreters.partial_eval import dce_jaxpr

from moment_calculus.recognition import Symbolic, resolved
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.refusals.notices import at_line
from numpyro_moments.evaluation import user_line
from numpyro_moments.evaluation.known_numbers import KnownNumbers
from numpyro_moments.rules.table import INLINED, PARTS, PROGRAMS, RULES, is_random

# What a number becomes on its way to another shape or type; it is still that number.
_KEEPS_NUMBERS = frozenset(
    "broadcast_in_dim convert_element_type copy reshape squeeze stop_gradient".split()
)

_LARGEST_INDEX = 2**20


class Interpreter:
    """Evaluates jaxprs with moments.

    Args:
        rules: rules of primitives that exist in this program only, by name.
        outputs: for each of the program's outputs, the site it belongs to or an empty string,
            for messages; by default none.
    """

    def __init__(
        self, rules: Mapping[str, Callable] | None = None, outputs: Sequence[str] = ()
    ) -> None:
        self.own = frozenset(rules or {})
        self.rules = {**RULES, **(rules or {})}
        self.outputs = outputs
        self.numbers = KnownNumbers()
        self.calls: list[Any] = []  # enclosing equations, the outermost first
        self.program: core.Jaxpr | None = None  # what is being run, without dead code

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Evaluate the body of a loop of JAX, of which no value may be kept."""
        outer, self.numbers = self.numbers, self.numbers.copy()
        try:
            yield
        finally:
            self.numbers = outer

    def holds_own(self, equation: Any) -> bool:
        """Whether an equation, or a program inside it, has a rule of this program only.

        Args:
            equation: of a jaxpr.
        """
        if not self.own or equation.primitive.name in self.own:
            return bool(self.own)
        programs = core.jaxprs_in_params(equation.params)
        return any(self.holds_own(inner) for program in programs for inner in program.eqns)

    def run(self, program: core.ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
        """Evaluate a program; what does not reach an output is left out.

        Args:
            program: closed jaxpr.
            operands: one for each input: arrays, numbers or random values.

        Returns:
            One array or random value for each output.

        Raises:
            UnsupportedMoments: if an operation on random values has no rule.
        """
        return self.evaluate(program.jaxpr, program.consts, operands)

    def evaluate(
        self, jaxpr: core.Jaxpr, consts: Sequence[Any], operands: Sequence[Any]
    ) -> list[Any]:
        """The same for an open jaxpr and its constants."""
        return list(map(resolved, self.inline(jaxpr, consts, operands)))

    def inline(
        self, jaxpr: core.Jaxpr, consts: Sequence[Any], operands: Sequence[Any]
    ) -> list[Any]:
        """The same for a program that is part of another: parts of composites stay what they are.

        Args:
            jaxpr: open jaxpr.
            consts: its constants.
            operands: as of :meth:`run`.
        """
        live, _ = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
        if not self.calls:
            self.program = live
        return self.within(live, consts, operands)

    def within(self, live: core.Jaxpr, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """The same for a program without dead code."""
        return _Frame(self, live, consts, operands).evaluate()

    def noted(self, equation: Any, results: Sequence[Any]) -> None:
        """What an equation on random operands gives; nothing is done with it here.

        Args:
            equation: of the program that is being evaluated.
            results: one for each of its outputs.
        """


class _Frame:
    """The environment of one jaxpr."""

    def __init__(self, interpreter: Interpreter, jaxpr: Any, consts: Any, operands: Any) -> None:
        self.interpreter, self.jaxpr = interpreter, jaxpr
        self.values = dict(zip(jaxpr.constvars, consts, strict=True))
        self.values.update(zip(jaxpr.invars, operands, strict=True))

    def evaluate(self) -> list[Any]:
        for equation in self.jaxpr.eqns:
            operands = [self._read(operand) for operand in equation.invars]
            own = self.interpreter.holds_own(equation)
            if any(map(is_random, operands)) and not own and _is_empty(*equation.outvars):
                results = [_nothing(output) for output in equation.outvars]
            elif any(map(is_random, operands)) or own:
                results = self._random(equation, operands)
                self.interpreter.noted(equation, results)
            else:
                results = self._certain(equation, operands)
            self.values.update(zip(equation.outvars, results, strict=True))
        return [self._read(output) for output in self.jaxpr.outvars]

    def _read(self, variable: Any) -> Any:
        if isinstance(variable, core.Literal):
            return variable.val
        value = self.values[variable]
        return _nothing(variable) if is_random(value) and _is_empty(variable) else value

    def _certain(self, equation: Any, operands: list[Any]) -> list[Any]:
        primitive = equation.primitive
        with (
            source_info_util.user_context(equation.source_info.traceback),
            equation.ctx.manager,
            _concretely(equation, operands),
        ):
            result = primitive.bind(*operands, **primitive.get_bind_params(equation.params))
        if primitive.name in _KEEPS_NUMBERS and operands:
            self.interpreter.numbers.follow(operands[0], result)
        return result if primitive.multiple_results else [result]

    def _random(self, equation: Any, operands: list[Any]) -> list[Any]:
        result = self._located(equation, lambda: self._apply(equation, operands), operands)
        return list(result) if equation.primitive.multiple_results else [result]

    def _located(self, equation: Any, apply: Callable[[], Any], operands: Sequence[Any]) -> Any:
        """What is applied for an equation, whose line warnings and refusals name."""
        interpreter = self.interpreter
        try:
            with at_line(lambda: user_line.line_of(equation, interpreter.calls)):
                return apply()
        except UnsupportedMoments as refusal:
            raise user_line.located(refusal, equation, operands, interpreter) from None

    def _apply(self, equation: Any, operands: list[Any]) -> Any:
        name = equation.primitive.name
        if name in PROGRAMS:
            return self._program(PROGRAMS[name], equation, operands)
        rule = self.interpreter.rules.get(name)
        if getattr(rule, "numbers", True) and any(_fits(equation, part) for part in operands):
            operands = list(map(self.interpreter.numbers.simplified, operands))
        if name in PARTS and name not in self.interpreter.own:
            part = PARTS[name](partial(self._plain, equation), *operands, **equation.params)
            if part is not None:
                return self._for_later(equation, part)
        return self._plain(equation, *operands)

    def _plain(self, equation: Any, *operands: Any) -> Any:
        """What the rule of an equation makes of operands that are no parts of composites."""
        operands = tuple(map(resolved, operands))
        rule = self.interpreter.rules.get(equation.primitive.name)
        if rule is None:
            raise _no_rule(equation.primitive.name, operands)
        return rule(*operands, **equation.params)

    def _for_later(self, equation: Any, result: Any) -> Any:
        """A part of a composite; what it is on its own is computed as at its equation."""
        if not isinstance(result, Symbolic):
            return result
        calls = list(self.interpreter.calls)

        def compute(plain: Callable[[], Any]) -> Any:
            current, self.interpreter.calls = self.interpreter.calls, calls
            try:
                return self._located(equation, plain, ())
            finally:
                self.interpreter.calls = current

        return result.computed(compute)

    def _program(self, rule: Callable, equation: Any, operands: list[Any]) -> Any:
        if equation.primitive.name not in INLINED:
            operands = list(map(resolved, operands))
        self.interpreter.calls.append(equation)
        try:
            return rule(self.interpreter, equation, operands)
        finally:
            self.interpreter.calls.pop()


def _is_empty(*variables: Any) -> bool:
    """Whether there are variables, without elements, so that nothing about them is random."""
    return bool(variables) and all(variable.aval.size == 0 for variable in variables)


def _nothing(variable: Any) -> jax.Array:
    return jnp.zeros(variable.aval.shape, variable.aval.dtype)


def _concretely(equation: Any, operands: list[Any]) -> Any:
    """Evaluate what is known when the program is traced: small constants stay constants."""
    unknown = any(isinstance(operand, jax.core.Tracer) for operand in operands)
    small = all(map(_is_small, (*equation.invars, *equation.outvars)))
    if unknown or not small or not operands:
        return contextlib.nullcontext()
    return jax.ensure_compile_time_eval()


def _is_small(part: Any) -> bool:
    """Numbers and index arrays; rules must know whether an index takes an element twice."""
    index = not jnp.issubdtype(part.aval.dtype, jnp.inexact) and part.aval.size <= _LARGEST_INDEX
    return index or part.aval.size <= 1


def _fits(equation: Any, operand: Any) -> bool:
    """Whether a random operand has the result's shape, so that certain ones need none."""
    shapes = (output.aval.shape for output in equation.outvars)
    return is_random(operand) and all(operand.shape == shape for shape in shapes)


def _no_rule(name: str, operands: Sequence[Any]) -> UnsupportedMoments:
    return UnsupportedMoments(
        "no moment rule for this primitive on random values",
        sites=frozenset().union(*(o.sites for o in operands if is_random(o))),
        remedy="use supported operations, register a rule with "
        f"@numpyro_moments.moment_rule({name!r}), or draw the latent sites by naming them in "
        "sample_sites=",
    )
