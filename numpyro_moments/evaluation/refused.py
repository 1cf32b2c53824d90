"""Evaluate a jaxpr in which refused operations have results without moments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp

from moment_calculus import UnsupportedMoments
from numpyro_moments.evaluation.interpreter import Interpreter
from numpyro_moments.rules.table import Refused


class HoldingInterpreter(Interpreter):
    """Evaluates jaxprs; outside of loops a refusal is a value, and so is what depends on it."""

    is_in_loop = False

    @contextlib.contextmanager
    def loop_body(self) -> Iterator[None]:
        """Raise the refusals in a JAX loop, which is refused as a whole."""
        outer, self.is_in_loop = self.is_in_loop, True
        try:
            with super().loop_body():
                yield
        finally:
            self.is_in_loop = outer

    def resolved(self, output: Any) -> Any:
        """Return an output on its own, without moments where they are refused."""
        try:
            return super().resolved(output)
        except UnsupportedMoments as refusal:
            if self.is_in_loop:
                raise
            return Refused(tuple(output.shape), jnp.result_type(float), refusal)

    def moments_or_refused(
        self, equation: Any, operands: Sequence[Any], compute: Callable[[], list[Any]]
    ) -> list[Any]:
        """Return the results of an equation, without moments where they are refused."""
        known = [part.refusal for part in operands if isinstance(part, Refused)]
        if self.is_in_loop:
            return _raise(known[0]) if known else compute()
        try:
            if not known:
                return compute()
        except UnsupportedMoments as refusal:
            known = [refusal]
        outputs = (output.aval for output in equation.outvars)
        return [Refused(tuple(aval.shape), aval.dtype, known[0]) for aval in outputs]


def _raise(refusal: UnsupportedMoments) -> Any:
    raise refusal
