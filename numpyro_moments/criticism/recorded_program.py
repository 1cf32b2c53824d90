"""Record a program's equations of JAX, and run it again with draws."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from moment_calculus.numerics import private_apis
from moment_calculus.operations import catalogue as ops
from moment_inference.criticism import RecordedOperation
from numpyro_moments._host import ClosedJaxpr, Jaxpr, apply_equation
from numpyro_moments.evaluation.interpreter import Interpreter
from numpyro_moments.evaluation.user_line import line_of
from numpyro_moments.rules.programs.calls import function_of_jax
from numpyro_moments.rules.table import INLINED


@dataclass(eq=False)
class Frame:
    """A program as it was evaluated: the whole, or the program of a call inside it."""

    jaxpr: Jaxpr  # without dead code
    consts: Sequence[Any]
    # Frames of calls, by the index of their equations.
    inner: dict[int, Frame] = field(default_factory=dict)

    def index(self, equation: Any) -> int | None:
        """Return the index of an equation; None if it is not in this program."""
        found = (index for index, own in enumerate(self.jaxpr.eqns) if own is equation)
        return next(found, None)


class Note(NamedTuple):
    """One result of one equation."""

    frame: Frame
    equation_index: int
    output: int  # index among its outputs
    item: RecordedOperation


class Recorder(Interpreter):
    """Evaluates a program with moments, and records results.

    Equations in the bodies of loops and branches are not recorded, only the results of
    these.
    """

    def __init__(self, rules: Mapping[str, Any], output_sites: Sequence[str] = ()) -> None:
        super().__init__(rules, output_sites)
        self.notes: list[Note] = []
        self.frames: list[Frame] = []  # of the whole program, then of calls
        self.operands: Sequence[Any] = ()
        self.results: list[Any] = []
        self._open: list[Frame | None] = []

    def run_closed(self, program: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
        """Evaluate a program, and keep what draws of the same program need."""
        self.operands, self.results = operands, super().run_closed(program, operands)
        return self.results

    def arrays(self) -> Any:
        """Return the constants and operands that the program was evaluated with."""
        return [frame.consts for frame in self.frames], self.operands

    def keep(self, arrays: Any) -> None:
        """Replace the traced arrays that :meth:`arrays` returns by their values."""
        constants, self.operands = arrays
        for frame, consts in zip(self.frames, constants, strict=True):
            frame.consts = consts

    def run_live(self, live: Jaxpr, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Evaluate the whole program, or a program that is part of another."""
        self._open.append(self._entered(live, consts))
        try:
            return super().run_live(live, consts, operands)
        finally:
            self._open.pop()

    def _entered(self, live: Jaxpr, consts: Sequence[Any]) -> Frame | None:
        frame = Frame(live, consts)
        if not self._open:
            self.frames.append(frame)
            return frame
        outer = self._open[-1]
        caller = self.calls[-1] if self.calls else None
        if outer is None or caller is None or caller.primitive.name not in INLINED:
            return None
        if (index := outer.index(caller)) is None:
            return None
        outer.inner[index] = frame
        self.frames.append(frame)
        return frame

    def record(self, equation: Any, results: Sequence[Any]) -> None:
        """Record results; a function of JAX replaces its inner records of the same values."""
        frame = self._open[-1]
        if frame is None or (index := frame.index(equation)) is None:
            return
        name, calls = equation.primitive.name, [e for e in self.calls if e is not equation]
        called = function_of_jax(equation).strip("_") if name in INLINED else ""
        for output, value in enumerate(results):
            inside = [note for note in self.notes if note.item.value is value]
            if inside and not called:
                continue
            for note in inside:
                self.notes.remove(note)
            line = line_of(equation, calls)
            where = f"{line[0]}:{line[1]}" if line else ""
            item = RecordedOperation(called or name, where, value)
            self.notes.append(Note(frame, index, output, item))

    def recorded(self, caller: str) -> list[RecordedOperation]:
        """Return the records, without the line ``caller``, which runs the program."""
        return [
            RecordedOperation(
                note.item.operation,
                "" if note.item.line == caller else note.item.line,
                own_value(note.item.value),
            )
            for note in self.notes
        ]


def own_value(value: Any) -> Any:
    """Return a value; of a part of a composite its own value, or None."""
    return value._value if isinstance(value, ops.Symbolic) else value


def sites_among(
    results: Sequence[Any], wanted: Iterator[tuple[str, str, str, Any, Any]]
) -> tuple[list[RecordedOperation], list[int]]:
    """Return records of the sites and parameters among the results, and their indices.

    ``wanted`` has a name, a kind, a line, the result, and the value that is recorded.
    """
    operations, indices = [], []
    for name, kind, line, value, asked in wanted:
        index = next((k for k, result in enumerate(results) if result is value), None)
        if index is not None:
            operations.append(RecordedOperation(kind, line, own_value(asked), name))
            indices.append(index)
    return operations, indices


class Replay:
    """One run of a recorded program with draws."""

    def __init__(self, recorder: Recorder, key: Any) -> None:
        self.recorder, self.key = recorder, key
        # Results by the id of the frame and the index of the equation.
        self.results: dict[tuple[int, int], Sequence[Any]] = {}
        self.draws: dict[str, Callable[[Any, Sequence[Any]], Any]] = {
            "latent": self._latent,
            "noise": self._noise,
        }

    def run(self, frame: Frame, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Evaluate a frame, keep the results of its equations, and return its outputs."""
        values = dict(zip(frame.jaxpr.constvars, consts, strict=True))
        values.update(zip(frame.jaxpr.invars, operands, strict=True))
        for index, equation in enumerate(frame.jaxpr.eqns):
            results = self._results(
                frame, index, equation, [private_apis.read(v, values) for v in equation.invars]
            )
            self.results[id(frame), index] = results
            values.update(zip(equation.outvars, results, strict=True))
        return [private_apis.read(output, values) for output in frame.jaxpr.outvars]

    def _results(
        self, frame: Frame, index: int, equation: Any, operands: list[Any]
    ) -> Sequence[Any]:
        name = equation.primitive.name
        if name in self.draws:
            return [self.draws[name](equation, operands)]
        if (inner := frame.inner.get(index)) is not None:
            return self.run(inner, inner.consts, operands)
        if self.recorder.has_local_rule(equation):
            inner = _inside(equation)
            return self.run(inner, inner.consts, operands)
        return apply_equation(equation, operands)

    def _key_of(self, name: str) -> Any:
        return jax.random.fold_in(self.key, zlib.crc32(name.encode()))

    def _latent(self, equation: Any, leaves: Sequence[Any]) -> Any:
        """Return a draw from the posterior of a site."""
        parameters = equation.params
        fn = jax.tree.unflatten(parameters["structure"], leaves)
        repeated = parameters["shape"][: len(parameters["shape"]) - len(fn.shape())]
        draw = fn.sample(self._key_of(parameters["site"]), repeated)
        return draw.astype(parameters["dtype"])

    def _noise(self, equation: Any, _: Sequence[Any]) -> Any:
        """Return uniform numbers, the same for noise of the same name."""
        parameters = equation.params
        key = self._key_of(f"noise {parameters['name']}")
        return jax.random.uniform(key, parameters["shape"], parameters["dtype"])


def _inside(equation: Any) -> Frame:
    """Return the program of a call in which sites are drawn, and nothing was recorded."""
    program = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    jaxpr = getattr(program, "jaxpr", program)
    return Frame(private_apis.without_dead_code(jaxpr), getattr(program, "consts", ()))


def drawer(
    recorder: Recorder, outputs: Sequence[int], key: Any
) -> Callable[[int, Sequence[int]], list[Any]]:
    """Return a function that runs a recorded program: (count, indices) -> arrays [count, ...].

    The indices are of the recorded results of equations, followed by the program's
    ``outputs``.
    """
    frame = recorder.frames[0]
    compiled: dict[tuple[int, ...], Callable] = {}
    calls = 0

    def once(
        indices: tuple[int, ...], key: Any, consts: Sequence[Any], operands: Sequence[Any]
    ) -> list[Any]:
        replay = Replay(recorder, key)
        results = replay.run(frame, consts, operands)
        notes = [replay.results[id(n.frame), n.equation_index][n.output] for n in recorder.notes]
        every = [*notes, *(results[index] for index in outputs)]
        return [every[index] for index in indices]

    def draw(count: int, indices: Sequence[int]) -> list[Any]:
        nonlocal calls
        wanted, calls = tuple(indices), calls + 1
        if wanted not in compiled:
            each = lambda *arrays: once(wanted, *arrays)  # noqa: E731
            compiled[wanted] = jax.jit(jax.vmap(each, in_axes=(0, None, None)))
        keys = jax.random.split(jax.random.fold_in(key, calls), count)
        return compiled[wanted](keys, frame.consts, recorder.operands)

    return draw
