"""Find random numbers drawn outside sites: uniform and normal ones get moments, others raise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from numpyro.primitives import Messenger

from moment_calculus import errors
from moment_calculus.numerics import private_apis
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Propagation
from numpyro_moments._host import ClosedJaxpr, Jaxpr, apply_equation, new_primitive, shaped
from numpyro_moments.evaluation.user_line import line_of
from numpyro_moments.rules.programs.calls import function_of_jax

# checkpoint_name is an identity primitive with a label, visible in the jaxpr.
_KEY_LABEL = "key of a site"


class KeyMarker(Messenger):
    """Marks the keys that draw sites, subsamples and initial values of parameters."""

    def __init__(self, fn: Callable) -> None:
        super().__init__(fn)
        self.open_params = 0  # number of param statements being processed

    def process_message(self, msg: Any) -> None:
        """Mark the key of a message, and note the user's line of a site for later errors."""
        if msg["type"] in ("sample", "deterministic"):
            msg["line"] = errors.calling_line()
        if msg["type"] in ("sample", "plate") and msg["kwargs"].get("rng_key") is not None:
            msg["kwargs"]["rng_key"] = checkpoint_name(msg["kwargs"]["rng_key"], _KEY_LABEL)
        elif msg["type"] == "prng_key" and self.open_params and msg["value"] is not None:
            msg["value"] = checkpoint_name(msg["value"], _KEY_LABEL)
        self.open_params += msg["type"] == "param"

    def postprocess_message(self, msg: Any) -> None:
        """Note that a parameter has been made."""
        self.open_params -= msg["type"] == "param"


def check_no_silent_draws(program: Any, outputs: Collection[int]) -> None:
    """Raise if outputs depend on a program's key other than through sites.

    ``program`` is an open jaxpr whose first input is the model's key; ``outputs`` are the
    indices of the outputs that must not be random, given the sites.
    """
    is_output = [index in outputs for index in range(len(program.outvars))]
    if not private_apis.restricted(program, is_output)[1][0]:
        return
    live, used = private_apis.restricted(_cut_site_keys(program), is_output)
    if used[0]:
        operation, where = _place_of(_first_draw(live, live.invars[0]))
        raise errors.randomness_outside_sites(operation, where, framework="NumPyro")


def check_no_draws_left(program: ClosedJaxpr) -> None:
    """Raise UnsupportedMoments if a program still draws what its outputs need."""
    live = private_apis.without_dead_code(program.jaxpr)
    if (drawn := next(filter(draw_bits, live.eqns), None)) is not None:
        raise errors.randomness_in_function(*_place_of(drawn), NOT_MARGINALISED)


NOT_MARGINALISED = (
    "draw uniform numbers between 0 and 1 or standard normal ones, each by a key of its own, "
    "switch dropout and the like off (deterministic=True), or pass what is random as an argument: "
    "its Moments, or numbers drawn before"
)


def _place_of(equation: Any) -> tuple[str, str]:
    """Return the function of ``jax.random`` that an equation calls, and the user's line."""
    line = line_of(equation)
    name = str(equation.params.get("name", equation.primitive.name)).strip("_")
    return f"jax.random.{name}", f"{line[0]}:{line[1]}" if line else "unknown"


def _cut_site_keys(program: Jaxpr) -> Jaxpr:
    return program.replace(eqns=[_cut_equation(equation) for equation in program.eqns])


def is_marked(equation: Any) -> bool:
    """Return whether an equation marks the key of a site."""
    return equation.primitive.name == "name" and equation.params["name"] == _KEY_LABEL


def _cut_equation(equation: Any) -> Any:
    if is_marked(equation):
        return equation.replace(invars=[])
    if not any(private_apis.programs_inside(equation)):
        return equation
    return equation.replace(
        params={k: _map_programs(v, _cut_site_keys) for k, v in equation.params.items()}
    )


def _map_programs(part: Any, change: Callable[[Jaxpr], Jaxpr]) -> Any:
    if isinstance(part, Jaxpr):
        return change(part)
    if isinstance(part, ClosedJaxpr):
        return part.replace(jaxpr=change(part.jaxpr))
    if type(part) in (tuple, list):  # e.g. the branches of a condition, but no named tuples
        return type(part)(_map_programs(item, change) for item in part)
    return part


def _first_draw(program: Jaxpr, key: Any) -> Any:
    """Return the first equation that draws random bits from a key."""
    reached = {key}
    for equation in program.eqns:
        if any(not private_apis.is_constant(v) and v in reached for v in equation.invars):
            reached.update(equation.outvars)
            if draw_bits(equation):
                return equation
    return program.eqns[-1]  # the key itself, or what is made of it, is an output


def draw_bits(*equations: Any) -> bool:
    """Return whether equations, or programs inside them, make random bits."""
    names = private_apis.primitives_in(equations)
    return "random_gamma" in names or "bits" in " ".join(names)


noise_p = new_primitive("noise", lambda *, shape, dtype, **_: shaped(shape, dtype))
_CALL_PRIMITIVES = frozenset(
    "jit closed_call core_call remat2 custom_jvp_call custom_vjp_call".split()
)
_MAX_KEY_ELEMENTS = 2**16  # elements; no key is computed from larger arrays


class _UnknownKey(Exception):
    """Raised if a key depends on more than the model's key and constants."""


class _KeyValue(NamedTuple):
    """A concrete value from which keys are computed."""

    value: Any
    uses_key: bool  # whether it depends on the model's key


class _LazyValues:
    """The values of a program, computed when they are needed."""

    def __init__(self, program: Jaxpr, inputs: Sequence[Callable[[], _KeyValue]]) -> None:
        variables = (*program.constvars, *program.invars)
        self._thunks = dict(zip(variables, inputs, strict=True))
        for equation in program.eqns:
            results = functools.cache(functools.partial(self._results, equation))
            for index, variable in enumerate(equation.outvars):
                self._thunks[variable] = functools.partial(_one_of, results, index)

    def value(self, variable: Any) -> _KeyValue:
        """Return a value; raise _UnknownKey if it depends on more than the model's key."""
        if private_apis.is_constant(variable):
            return _KeyValue(variable.val, False)
        return self._thunks[variable]()

    def thunks(self, variables: Sequence[Any]) -> list[Callable[[], _KeyValue]]:
        """Return functions that compute values when they are called."""
        return [functools.partial(self.value, variable) for variable in variables]

    def _results(self, equation: Any) -> list[_KeyValue]:
        small = all(output.aval.size <= _MAX_KEY_ELEMENTS for output in equation.outvars)
        if is_marked(equation) or equation.effects or not small:
            raise _UnknownKey
        if (inner := _program_of(equation)) is not None:
            scope = _scope(*inner, self.thunks(equation.invars))
            return list(map(scope.value, inner[0].outvars))
        if any(private_apis.programs_inside(equation)):
            raise _UnknownKey
        operands = list(map(self.value, equation.invars))
        results = apply_equation(equation, [operand.value for operand in operands])
        uses_key = any(operand.uses_key for operand in operands)
        return [_KeyValue(result, uses_key) for result in results]


def _one_of(results: Callable[[], list[_KeyValue]], index: int) -> _KeyValue:
    return results()[index]


def _program_of(equation: Any) -> tuple[Jaxpr, Sequence[Any]] | None:
    """Return a call's program and constants, or None if the equation is not a call."""
    if equation.primitive.name not in _CALL_PRIMITIVES:
        return None
    program = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return getattr(program, "jaxpr", program), getattr(program, "consts", ())


def _constant(value: Any) -> _KeyValue:
    if private_apis.is_traced(value):
        raise _UnknownKey
    return _KeyValue(value, False)


def _scope(program: Jaxpr, consts: Sequence[Any], inputs: Sequence[Callable]) -> _LazyValues:
    return _LazyValues(program, [*(functools.partial(_constant, c) for c in consts), *inputs])


_KINDS = {"_uniform": "uniform", "_normal": "normal"}  # of noise, by JAX's functions
_BOUNDS = {"uniform": [0.0, 1.0], "normal": []}


class _NoiseRewriter:
    """Replaces uniform and normal draws by the primitive ``noise``, also in inner programs."""

    def __init__(self, by_any_key: bool) -> None:
        self.by_any_key = by_any_key  # or by those alone that come from the program's first input
        self.name_by_noise: dict[Any, str] = {}  # by keys, shape and dtype
        self.noise_by_key: dict[bytes, Any] = {}  # keys, shape and dtype by key

    def program(self, scope: _LazyValues, program: Jaxpr) -> Jaxpr:
        equations = [self._equation(scope, equation) for equation in program.eqns]
        return program.replace(eqns=equations)

    def _equation(self, scope: _LazyValues, equation: Any) -> Any:
        if (inner := _program_of(equation)) is None or not draw_bits(equation):
            return equation
        if (kind := _KINDS.get(function_of_jax(equation))) and (
            name := self._name(scope, equation, kind)
        ):
            output = equation.outvars[0].aval
            parameters = {"kind": kind, "name": name, "shape": output.shape, "dtype": output.dtype}
            return equation.replace(primitive=noise_p, invars=[], params=parameters)
        program, consts = inner
        inner_scope = _scope(program, consts, scope.thunks(equation.invars))
        changed = self.program(inner_scope, program)
        key = "jaxpr" if "jaxpr" in equation.params else "call_jaxpr"
        old = equation.params[key]
        new = old.replace(jaxpr=changed) if isinstance(old, ClosedJaxpr) else changed
        return equation.replace(params={**equation.params, key: new})

    def _name(self, scope: _LazyValues, equation: Any, kind: str) -> str:
        """Return the noise's name, or '' unless it is independent, and uniform on (0, 1)."""
        try:
            key, *bounds = map(scope.value, equation.invars)
        except _UnknownKey:
            return ""
        if (
            not (key.uses_key or self.by_any_key)
            or [float(bound.value) for bound in bounds] != _BOUNDS[kind]
        ):
            return ""
        rows, output = _rows(key.value), equation.outvars[0].aval
        drawn = (*rows, kind, output.shape, output.dtype)
        others = [row for row in rows if self.noise_by_key.setdefault(row, drawn) != drawn]
        if others or len(set(rows)) < len(rows):
            return ""
        return self.name_by_noise.setdefault(drawn, ops.noise_name())


def _rows(keys: Any) -> list[bytes]:
    """Return the data of each key, for one key or an array of keys."""
    typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    data = np.asarray(jax.random.key_data(keys) if typed else keys)
    return [row.tobytes() for row in data.reshape(-1, data.shape[-1])]


def with_noise(program: ClosedJaxpr, key: Any, by_any_key: bool = False) -> ClosedJaxpr:
    """Replace uniform and normal draws from ``key``, the program's first input, by ``noise``.

    With ``by_any_key`` draws from keys that the program makes itself are replaced too.
    """
    if not draw_bits(*program.jaxpr.eqns):
        return program
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    with jax.ensure_compile_time_eval():
        if typed:
            concrete_key = jax.random.key(0, impl=jax.random.key_impl(key))
        else:
            concrete_key = jax.random.PRNGKey(0)
        inputs = [
            lambda: _KeyValue(concrete_key, True),
            *[_unknown] * (len(program.jaxpr.invars) - 1),
        ]
        scope = _scope(program.jaxpr, program.consts, inputs)
        return program.replace(jaxpr=_NoiseRewriter(by_any_key).program(scope, program.jaxpr))


def _unknown() -> _KeyValue:
    raise _UnknownKey


def noise_rule(propagation: Propagation) -> Callable:
    """Return the moment rule of ``noise``; equal names share one value."""
    value_by_name: dict[str, Any] = {}

    def rule(*, kind: str, name: str, shape: Any, dtype: Any) -> Any:
        if name not in value_by_name:
            like = jnp.zeros(shape, dtype)
            value_by_name[name] = (
                ops.Uniform(name, like, propagation)
                if kind == "uniform"
                else ops.noise(name, like, like + 1, propagation)
            )
        return value_by_name[name]

    return rule
