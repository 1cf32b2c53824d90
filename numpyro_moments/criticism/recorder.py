"""Records what equations on random values give, in the order of the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jax.extend import core

from moment_calculus.criticism.accuracy.layers import Recorded
from moment_calculus.recognition import Symbolic
from numpyro_moments.evaluation.interpreter import Interpreter
from numpyro_moments.evaluation.user_line import line_of
from numpyro_moments.rules.programs.recognised_calls import function_of_jax
from numpyro_moments.rules.table import INLINED


@dataclass(eq=False)
class Frame:
    """One program as it was evaluated: the whole, or that of a call that is part of it.

    Args:
        jaxpr: without dead code.
        consts: its constants.
        inner: the frames of calls, by the place of their equations.
    """

    jaxpr: core.Jaxpr
    consts: Sequence[Any]
    inner: dict[int, Frame] = field(default_factory=dict)

    def place(self, equation: Any) -> int | None:
        """The place of an equation; None if it is none of this program.

        Args:
            equation: of any program.
        """
        found = (place for place, own in enumerate(self.jaxpr.eqns) if own is equation)
        return next(found, None)


class Note(NamedTuple):
    """One result of one equation.

    Args:
        frame: the program.
        place: of the equation.
        output: which of its outputs.
        item: what it gave.
    """

    frame: Frame
    place: int
    output: int
    item: Recorded


class Recorder(Interpreter):
    """Evaluates a program with moments, and notes results.

    The bodies of loops and branches are no part of the program: their results are.

    Args:
        rules: as of :class:`Interpreter`.
        outputs: likewise.
    """

    def __init__(self, rules: Mapping[str, Any], outputs: Sequence[str] = ()) -> None:
        super().__init__(rules, outputs)
        self.notes: list[Note] = []
        self.frames: list[Frame] = []  # the whole program first
        self.operands: Sequence[Any] = ()
        self.results: list[Any] = []
        self._open: list[Frame | None] = []

    def run(self, program: core.ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
        """Evaluate a program, and keep what draws of the same program need."""
        self.operands, self.results = operands, super().run(program, operands)
        return self.results

    def known(self) -> Any:
        """The arrays that the program was evaluated with."""
        return [frame.consts for frame in self.frames], self.operands

    def keep(self, arrays: Any) -> None:
        """Keep the arrays of :meth:`known`, which were traced, as they are.

        Args:
            arrays: of its form.
        """
        constants, self.operands = arrays
        for frame, consts in zip(self.frames, constants, strict=True):
            frame.consts = consts

    def within(self, live: core.Jaxpr, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Evaluate a program that is part of another, or the whole."""
        self._open.append(self._entered(live, consts))
        try:
            return super().within(live, consts, operands)
        finally:
            self._open.pop()

    def _entered(self, live: core.Jaxpr, consts: Sequence[Any]) -> Frame | None:
        frame = Frame(live, consts)
        if not self._open:
            self.frames.append(frame)
            return frame
        outer = self._open[-1]
        caller = self.calls[-1] if self.calls else None
        if outer is None or caller is None or caller.primitive.name not in INLINED:
            return None
        if (place := outer.place(caller)) is None:
            return None
        outer.inner[place] = frame
        self.frames.append(frame)
        return frame

    def noted(self, equation: Any, results: Sequence[Any]) -> None:
        """Note results; of a call those that are not known from inside, or by JAX's own name."""
        frame = self._open[-1]
        if frame is None or (place := frame.place(equation)) is None:
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
            item = Recorded(called or name, where, value)
            self.notes.append(Note(frame, place, output, item))

    def recorded(self, caller: str) -> list[Recorded]:
        """What was recorded.

        Args:
            caller: file and line from which the program was run, which is no line of it.
        """
        return [
            Recorded(
                note.item.operation,
                "" if note.item.line == caller else note.item.line,
                settled(note.item.value),
            )
            for note in self.notes
        ]


def settled(value: Any) -> Any:
    """A part of a composite as the value that was computed of it on its own, or None.

    Args:
        value: of an equation.
    """
    return value._value if isinstance(value, Symbolic) else value


def sites_among(
    results: Sequence[Any], wanted: Iterator[tuple[str, str, str, Any]]
) -> tuple[list[Recorded], list[int]]:
    """The sites and parameters that are outputs of a program, and which outputs they are.

    Args:
        results: the outputs.
        wanted: name, kind, line and value of each.
    """
    found, places = [], []
    for name, kind, line, value in wanted:
        place = next((k for k, result in enumerate(results) if result is value), None)
        if place is not None:
            found.append(Recorded(kind, line, settled(value), name))
            places.append(place)
    return found, places
