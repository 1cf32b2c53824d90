"""The programs of ``tests/cases/programs.py`` in JAX: the same statuses, the numbers of torch."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import pyro_moments
from numpyro_moments import (
    CovarianceDroppedWarning,
    DependenceWarning,
    Moments,
    UnsupportedMoments,
    propagate,
)
from tests.cases import programs
from tests.numpyro.one_program import evaluated, propagate_traced
from tests.pyro.rules import test_programs

MODES = ("full", "diagonal")
EXACT = {"rtol": 1e-10, "atol": 1e-10}
# A matrix with dependent components is refused as the weight of ``F.linear``, but as a product of
# matrices, JAX's only spelling, it is the input that a certain matrix maps.
AS_PRODUCTS = ("weight_of_product", "weight_of_shared_factor", "weight_of_expanded_row")


def linear(x, weight, bias=None):
    product = x @ weight.T
    return product if bias is None else product + bias


pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def recorded(evaluate: Callable, *arguments: Any, **options: Any):
    """What a function returns, and the warnings of the library."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = evaluate(*arguments, **options)
    ours = (DependenceWarning, CovarianceDroppedWarning)
    return result, [w for w in caught if issubclass(w.category, ours)]


def arrays(letters: str) -> list[Moments]:
    return [_in_jax(moments) for moments in test_programs.random_inputs(letters)]


def _in_jax(moments: pyro_moments.Moments) -> Moments:
    mean = jnp.asarray(moments.mean.numpy())
    if moments.covariance is None:
        return Moments(mean, variance=jnp.asarray(moments.variance.numpy()))
    return Moments(mean, covariance=jnp.asarray(moments.covariance.numpy()))


def named(host: programs.Host, name: str) -> programs.Program:
    """A program in a framework; JAX's constants need double precision."""
    return {program.name: program for program in programs.programs(host)}[name]


def on_data(program: programs.Program):
    data = jnp.asarray(programs.x.numpy())
    return (lambda *inputs: program.function(data, *inputs)) if program.data else program.function


def check(part: jax.Array, expected) -> None:
    np.testing.assert_allclose(np.asarray(part), expected.numpy(), **EXACT)


def owed(program: programs.Program, mode: str) -> str:
    return "exact" if program.name in AS_PRODUCTS else getattr(program, mode)


def is_compiled(program: programs.Program, mode: str) -> bool:
    """The others are evaluated by themselves: what is refused, and a part that is eager."""
    expected = owed(program, mode)
    return expected == "exact" or (mode == "full" and expected != "refused")


@functools.cache
def in_one_program(mode: str) -> dict[str, tuple]:
    """Moments and warnings; every program compiled by itself takes longer."""
    in_jax = {program.name: program for program in programs.programs(programs.Host(jnp, linear))}
    kept = [plain for plain in programs.PROGRAMS if is_compiled(plain, mode)]
    caught = {}

    def together(inputs):
        results = {}
        for name, moments in inputs.items():
            function = on_data(in_jax[name])
            results[name], caught[name] = recorded(propagate, function, *moments, covariance=mode)
        return results

    results = evaluated(together, {plain.name: arrays(plain.inputs) for plain in kept})
    return {name: (results[name], caught[name]) for name in results}


def found(plain: programs.Program, mode: str):
    """Moments of a program in JAX, and the warnings."""
    if is_compiled(plain, mode):
        return in_one_program(mode)[plain.name]
    evaluate = {"full": propagate_traced, "diagonal": propagate}[mode]
    function = on_data(named(programs.Host(jnp, linear), plain.name))
    return recorded(evaluate, function, *arrays(plain.inputs), covariance=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("plain", programs.PROGRAMS, ids=lambda p: p.name)
def test_program(plain, mode):
    expected = owed(plain, mode)
    if expected == "refused":
        with pytest.raises(UnsupportedMoments, match="remedy: "):
            found(plain, mode)
        return
    result, caught = found(plain, mode)
    if plain.name in AS_PRODUCTS:
        plain = named(programs.Host(torch, linear), plain.name)
    inputs = test_programs.random_inputs(plain.inputs)
    reference, _ = test_programs.run(test_programs.on_data(plain, programs.x), inputs, mode)
    check(result.mean, reference.mean)
    check(result.variance, reference.variance)
    assert bool(caught) == (expected == "warning"), [str(w.message) for w in caught]
    assert all(w.filename in (programs.__file__, __file__) for w in caught)
    if expected == "exact" and result.covariance is not None:
        true = test_programs.exact_moments(test_programs.on_data(plain, programs.x), inputs)
        check(result.covariance, true["covariance"])
