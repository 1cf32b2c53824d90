"""Keep compiled programs from call to call, for models and guides that compute the same."""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
from numpyro.distributions import Distribution

from moment_calculus import errors
from moment_calculus.numerics import private_apis
from moment_calculus.values import FunctionRegistry
from numpyro_moments._host import active_handlers
from numpyro_moments.evaluation.fingerprint import Incomparable, fingerprint

# A model looks at numbers of its arguments: a mask that selects rows, a condition, the places
# of an update.
LOOKS_AT_NUMBERS = jax.errors.JAXTypeError, jax.errors.JAXIndexError, errors.UnknownNumbers
MOST = 32  # models, with guides and objectives, whose programs are kept
OPTIONS = "jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion"
EACH = 64  # programs of each: for other shapes of data

# Compilation of many small operations takes longer than all runs: with these options a
# Newton fit of a scan of 50 steps takes 20 instead of 58 s, draws of a network of two layers
# 0.3 instead of 3.4 s. Single runs take up to 2.2 times as long, of larger operations more: a
# step of a network of 50 units and 450 rows takes 12.8 instead of 2.1 ms.
QUICK: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    # Steps that each use the one before twice are repeated in what is fused: the slope of an
    # epidemic of 30 steps takes minutes to compile with fusion, 2 s without.
    "xla_disable_hlo_passes": "fusion",
}
if jax.__version_info__ < (0, 11):  # later releases have no other emitters
    # The others would save a second, but with this level they make slopes wrong: of log B(ms + y,
    # (1 - m)s + n - y) by m and s by 1 to 30 %.
    QUICK["xla_cpu_use_fusion_emitters"] = True
ROUNDS = {"while": 100}  # of a loop that counts them as it runs, as that of a training
MANY = 300  # equations from which these are better, if they run seldom enough:
WORTH = 1 << 23  # bytes of results of all runs that one equation less optimised is worth
OFTEN = 1 << 11  # runs of a program, unless it is said how many


class _Program(NamedTuple):
    compiled: Callable
    warned: list[warnings.WarningMessage]  # while it was traced


Kept = OrderedDict[Hashable, Any]
_KEPT: Kept = OrderedDict()  # OrderedDicts of programs by what they are made of
_SHOWN: dict[Any, Any] = {}  # warnings that the filters show once


def _recent(kept: Kept, key: Hashable, most: int, make: Callable[[], Any]) -> Any:
    """Return an entry, made if it is new; the one that was not used for longest makes room."""
    if key not in kept:
        kept[key] = make()
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return kept[key]


class Programs:
    """Compiled programs that depend on their arguments and on ``owners`` alone.

    They are found again by the values of the owners; owners that cannot be compared have
    programs of their own. Nothing of the owners is kept: a program is compiled at once.
    """

    def __init__(self, *owners: Any) -> None:
        self._own: Kept = OrderedDict()
        try:
            options = [getattr(jax.config, option) for option in OPTIONS]
            values = fingerprint((owners, active_handlers(), options))
            key = values, FunctionRegistry.registrations, Distribution._validate_args
            self._own = _recent(_KEPT, key, MOST, OrderedDict)
        except Incomparable:
            pass

    @classmethod
    def alone(cls) -> Programs:
        """Return programs that are not found again."""
        return cls(object())

    def run(self, name: Hashable, function: Callable, *args: Any, **options: Any) -> Any:
        """Return function(*args) by the program of :meth:`compiled`."""
        return self.compiled(name, function, *args, **options)(*args)

    def run_on(
        self, data: list, name: Hashable, function: Callable, *args: Any, **options: Any
    ) -> Any:
        """Return function(*args, data), or function(*args, None) if data have to be constants."""
        try:
            return self.run(name, function, *args, data, **options)
        except LOOKS_AT_NUMBERS:
            return Programs.alone().run(name, function, *args, None, **options)

    def compiled(
        self,
        name: Hashable,
        function: Callable,
        *args: Any,
        options: dict[str, Any] | None = None,
        runs: int = OFTEN,
    ) -> Callable:
        """Return a function, compiled for arrays of these shapes.

        The name tells programs of the same owners apart, and holds all other values that the
        function depends on beside its arguments, arrays in containers. The options of the compiler,
        if not given, are those that suit about so many runs.
        """
        if getattr(jax.config, "jax_disable_jit"):  # noqa: B009
            return function
        leaves, structure = jax.tree.flatten(args)
        key = name, structure, tuple(map(_kind, leaves))

        def program() -> _Program:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                compiled = _compile(function, args, options, runs)
            return _Program(compiled, warned)

        compiled, warned = _recent(self._own, key, EACH, program)
        for each in warned:
            where = each.category, each.filename, each.lineno
            warnings.warn_explicit(each.message, *where, registry=_SHOWN)
        return compiled


def compiled_for(function: Callable, *args: Any, runs: int) -> Callable:
    """Return a function, compiled for arrays of the shapes of its arguments and so many runs."""
    if getattr(jax.config, "jax_disable_jit"):  # noqa: B009
        return function
    return _compile(function, args, None, runs)


def _compile(
    function: Callable, args: tuple, options: dict[str, Any] | None, runs: int
) -> Callable:
    """Return a function, compiled for arrays of the shapes of ``args``."""
    traced = jax.jit(function).trace(*args)
    options = options or _options_for(traced.jaxpr.jaxpr, runs)
    return traced.lower().compile(compiler_options=options)


def _options_for(program: Any, runs: int = OFTEN) -> dict[str, Any] | None:
    """Return the compiler's options for a traced program that runs so often."""
    if jax.default_backend() != "cpu":
        return None
    count, size = _equations(program)
    return QUICK if count >= MANY and runs * size <= count * WORTH else None


def _equations(program: Any) -> tuple[int, int]:
    """Return the number of equations of a traced program, and the bytes of all their results."""
    count, size = 0, 0
    for equation in program.eqns:
        rounds = equation.params.get("length", ROUNDS.get(equation.primitive.name, 1))
        for inside in private_apis.programs_inside(equation):
            inner, bytes_inside = _equations(inside)
            count, size = count + inner, size + rounds * bytes_inside
        shapes = (result.aval for result in equation.outvars)
        size += sum(math.prod(getattr(shape, "shape", ())) * _bytes(shape) for shape in shapes)
        count += 1
    return count, size


def _bytes(shape: Any) -> int:
    dtype = getattr(shape, "dtype", None)
    return getattr(dtype, "itemsize", 8)  # of a random key


def _kind(leaf: Any) -> Hashable:
    """Return what a program is compiled for."""
    where = (leaf.sharding, leaf.committed) if isinstance(leaf, jax.Array) else None
    return jax.typeof(leaf), where
