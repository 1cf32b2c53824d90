"""Find random numbers outside a model's sites: some have moments, others raise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from numpyro.primitives import Messenger

from moment_calculus.errors import calling_line, randomness_outside_sites
from moment_calculus.numerics.private_apis import (
    is_constant,
    is_traced,
    programs_inside,
    restricted,
)
from moment_calculus.operations.dropout.noise import Uniform, noise_name
from moment_calculus.values.propagation import Propagation
from numpyro_moments._host import ClosedJaxpr, Jaxpr, apply_equation, new_primitive, shaped
from numpyro_moments.evaluation.user_line import line_of
from numpyro_moments.rules.programs.calls import function_of_jax

_MARK = "key of a site"


class Declared(Messenger):
    """Marks the keys that draw sites, subsamples and initial values of parameters."""

    def __init__(self, fn: Callable) -> None:
        super().__init__(fn)
        self.parameters = 0  # number of parameters that are being made

    def process_message(self, msg: Any) -> None:
        """Mark the key of a message, and note the user's line of a site for later errors."""
        if msg["type"] in ("sample", "deterministic"):
            msg["line"] = calling_line()
        if msg["type"] in ("sample", "plate") and msg["kwargs"].get("rng_key") is not None:
            msg["kwargs"]["rng_key"] = checkpoint_name(msg["kwargs"]["rng_key"], _MARK)
        elif msg["type"] == "prng_key" and self.parameters and msg["value"] is not None:
            msg["value"] = checkpoint_name(msg["value"], _MARK)
        self.parameters += msg["type"] == "param"

    def postprocess_message(self, msg: Any) -> None:
        """Note that a parameter has been made."""
        self.parameters -= msg["type"] == "param"


def refuse_silent_draws(program: Any, outputs: Collection[int]) -> None:
    """Raise if outputs depend on a program's key other than through sites.

    ``program`` is an open jaxpr whose first input is the model's key; ``outputs`` are the
    indices of the outputs that must not be random, given the sites.
    """
    wanted = [place in outputs for place in range(len(program.outvars))]
    live, used = restricted(_cut(program), wanted)
    if used[0]:
        culprit = _first_draw(live, live.invars[0])
        place = line_of(culprit)
        name = str(culprit.params.get("name", culprit.primitive.name)).strip("_")
        where = f"{place[0]}:{place[1]}" if place else "unknown"
        raise randomness_outside_sites(f"jax.random.{name}", where, framework="NumPyro")


def _cut(program: Jaxpr) -> Jaxpr:
    return program.replace(eqns=[_cut_equation(equation) for equation in program.eqns])


def is_marked(equation: Any) -> bool:
    """Return whether an equation marks the key of a site."""
    return equation.primitive.name == "name" and equation.params["name"] == _MARK


def _cut_equation(equation: Any) -> Any:
    if is_marked(equation):
        return equation.replace(invars=[])
    if not any(programs_inside(equation)):
        return equation
    return equation.replace(params={k: _inside(v, _cut) for k, v in equation.params.items()})


def _inside(part: Any, change: Callable[[Jaxpr], Jaxpr]) -> Any:
    if isinstance(part, Jaxpr):
        return change(part)
    if isinstance(part, ClosedJaxpr):
        return part.replace(jaxpr=change(part.jaxpr))
    if type(part) in (tuple, list):  # e.g. the branches of a condition, but no named tuples
        return type(part)(_inside(item, change) for item in part)
    return part


def _first_draw(program: Jaxpr, key: Any) -> Any:
    """Return the first equation that draws random bits from a key."""
    reached = {key}
    for equation in program.eqns:
        if any(not is_constant(v) and v in reached for v in equation.invars):
            reached.update(equation.outvars)
            if draws(equation):
                return equation
    return program.eqns[-1]


def draws(equation: Any) -> bool:
    """Return whether an equation, or a program inside it, makes random bits."""
    inner = programs_inside(equation)
    return "bits" in equation.primitive.name or any(draws(e) for jaxpr in inner for e in jaxpr.eqns)


noise_p = new_primitive("noise", lambda *, shape, dtype, **_: shaped(shape, dtype))
_CALLS = frozenset("jit closed_call core_call remat2 custom_jvp_call custom_vjp_call".split())
_LARGEST = 2**16  # elements; no key is computed from larger arrays


class _UnknownKey(Exception):
    """Raised if a key depends on more than the model's key and constants."""


class _Known(NamedTuple):
    """A value from which a key is computed."""

    value: Any
    drawn: bool  # whether it depends on the model's key


class _Scope:
    """The values of a program, computed when they are needed."""

    def __init__(self, program: Jaxpr, inputs: Sequence[Callable[[], _Known]]) -> None:
        variables = (*program.constvars, *program.invars)
        self.known = dict(zip(variables, inputs, strict=True))
        for equation in program.eqns:
            results = functools.cache(functools.partial(self._results, equation))
            for place, variable in enumerate(equation.outvars):
                self.known[variable] = functools.partial(_one_of, results, place)

    def value(self, variable: Any) -> _Known:
        """Return a value; raise _UnknownKey if it depends on more than the model's key."""
        if is_constant(variable):
            return _Known(variable.val, False)
        return self.known[variable]()

    def thunks(self, variables: Sequence[Any]) -> list[Callable[[], _Known]]:
        """Return functions that compute values when they are called."""
        return [functools.partial(self.value, variable) for variable in variables]

    def _results(self, equation: Any) -> list[_Known]:
        small = all(output.aval.size <= _LARGEST for output in equation.outvars)
        if is_marked(equation) or equation.effects or not small:
            raise _UnknownKey
        if (inner := _program_of(equation)) is not None:
            scope = _scope(*inner, self.thunks(equation.invars))
            return list(map(scope.value, inner[0].outvars))
        if any(programs_inside(equation)):
            raise _UnknownKey
        operands = list(map(self.value, equation.invars))
        results = apply_equation(equation, [operand.value for operand in operands])
        drawn = any(operand.drawn for operand in operands)
        return [_Known(part, drawn) for part in results]


def _one_of(results: Callable[[], list[_Known]], place: int) -> _Known:
    return results()[place]


def _program_of(equation: Any) -> tuple[Jaxpr, Sequence[Any]] | None:
    """Return the program that a call evaluates once, and its constants; None if it is no call."""
    if equation.primitive.name not in _CALLS:
        return None
    program = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return getattr(program, "jaxpr", program), getattr(program, "consts", ())


def _constant(value: Any) -> _Known:
    if is_traced(value):
        raise _UnknownKey
    return _Known(value, False)


def _scope(program: Jaxpr, consts: Sequence[Any], inputs: Sequence[Callable]) -> _Scope:
    return _Scope(program, [*(functools.partial(_constant, c) for c in consts), *inputs])


class _Rewriter:
    """Replaces uniform random numbers by the primitive ``noise``, also in inner programs."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}  # by keys, shape and dtype
        self.drawn_with: dict[bytes, Any] = {}  # keys, shape and dtype by key

    def program(self, scope: _Scope, program: Jaxpr) -> Jaxpr:
        equations = [self._equation(scope, equation) for equation in program.eqns]
        return program.replace(eqns=equations)

    def _equation(self, scope: _Scope, equation: Any) -> Any:
        if (inner := _program_of(equation)) is None or not draws(equation):
            return equation
        if function_of_jax(equation) == "_uniform" and (name := self._name(scope, equation)):
            output = equation.outvars[0].aval
            parameters = {"name": name, "shape": output.shape, "dtype": output.dtype}
            return equation.replace(primitive=noise_p, invars=[], params=parameters)
        program, consts = inner
        own = _scope(program, consts, scope.thunks(equation.invars))
        changed = self.program(own, program)
        place = "jaxpr" if "jaxpr" in equation.params else "call_jaxpr"
        old = equation.params[place]
        new = old.replace(jaxpr=changed) if isinstance(old, ClosedJaxpr) else changed
        return equation.replace(params={**equation.params, place: new})

    def _name(self, scope: _Scope, equation: Any) -> str:
        """Return the noise's name; empty if it is not known to be noise of its own on (0, 1)."""
        try:
            key, low, high = map(scope.value, equation.invars)
        except _UnknownKey:
            return ""
        if not key.drawn or (float(low.value), float(high.value)) != (0.0, 1.0):
            return ""
        rows, output = _rows(key.value), equation.outvars[0].aval
        noise = (*rows, output.shape, output.dtype)
        others = [row for row in rows if self.drawn_with.setdefault(row, noise) != noise]
        if others or len(set(rows)) < len(rows):
            return ""
        return self.names.setdefault(noise, noise_name())


def _rows(keys: Any) -> list[bytes]:
    """Return the data of each key, for one key or an array of keys."""
    typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    data = np.asarray(jax.random.key_data(keys) if typed else keys)
    return [row.tobytes() for row in data.reshape(-1, data.shape[-1])]


def with_noise(program: ClosedJaxpr, key: Any) -> ClosedJaxpr:
    """Replace uniform numbers that a program draws with ``key``, its first input, by ``noise``."""
    if not any(map(draws, program.jaxpr.eqns)):
        return program
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    with jax.ensure_compile_time_eval():
        own = jax.random.key(0, impl=jax.random.key_impl(key)) if typed else jax.random.PRNGKey(0)
        inputs = [lambda: _Known(own, True), *[_unknown] * (len(program.jaxpr.invars) - 1)]
        scope = _scope(program.jaxpr, program.consts, inputs)
        return program.replace(jaxpr=_Rewriter().program(scope, program.jaxpr))


def _unknown() -> _Known:
    raise _UnknownKey


def noise_rule(propagation: Propagation) -> Callable:
    """Return the moment rule of the primitive ``noise``; noise of one name is one value."""
    known: dict[str, Uniform] = {}

    def noise(*, name: str, shape: Any, dtype: Any) -> Uniform:
        if name not in known:
            known[name] = Uniform(name, jnp.zeros(shape, dtype), propagation)
        return known[name]

    return noise
