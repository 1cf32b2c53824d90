"""Run a recorded program with draws, equation by equation."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax

from moment_calculus.numerics.private_apis import read, without_dead_code
from numpyro_moments._host import apply_equation
from numpyro_moments.criticism.recorder import Frame, Recorder


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
        for place, equation in enumerate(frame.jaxpr.eqns):
            results = self._results(
                frame, place, equation, [read(v, values) for v in equation.invars]
            )
            self.results[id(frame), place] = results
            values.update(zip(equation.outvars, results, strict=True))
        return [read(output, values) for output in frame.jaxpr.outvars]

    def _results(
        self, frame: Frame, place: int, equation: Any, operands: list[Any]
    ) -> Sequence[Any]:
        name = equation.primitive.name
        if name in self.draws:
            return [self.draws[name](equation, operands)]
        if (inner := frame.inner.get(place)) is not None:
            return self.run(inner, inner.consts, operands)
        if self.recorder.holds_own(equation):
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
    return Frame(without_dead_code(jaxpr), getattr(program, "consts", ()))


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
        places: tuple[int, ...], key: Any, consts: Sequence[Any], operands: Sequence[Any]
    ) -> list[Any]:
        replay = Replay(recorder, key)
        results = replay.run(frame, consts, operands)
        notes = [replay.results[id(n.frame), n.place][n.output] for n in recorder.notes]
        every = [*notes, *(results[place] for place in outputs)]
        return [every[place] for place in places]

    def draw(count: int, places: Sequence[int]) -> list[Any]:
        nonlocal calls
        wanted, calls = tuple(places), calls + 1
        if wanted not in compiled:
            each = lambda *arrays: once(wanted, *arrays)  # noqa: E731
            compiled[wanted] = jax.jit(jax.vmap(each, in_axes=(0, None, None)))
        keys = jax.random.split(jax.random.fold_in(key, calls), count)
        return compiled[wanted](keys, frame.consts, recorder.operands)

    return draw
