"""The programs of ``tests/cases/programs.py`` in JAX: the same statuses, the numbers of torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable

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
from tests.numpyro.one_program import propagate_compiled
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


def run(function, inputs: list[pyro_moments.Moments], mode: str, evaluate: Callable = propagate):
    """The result for inputs that torch tensors describe, and the warnings of the library."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = evaluate(function, *map(_in_jax, inputs), covariance=mode)
    ours = (DependenceWarning, CovarianceDroppedWarning)
    return result, [w for w in caught if issubclass(w.category, ours)]


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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("plain", programs.PROGRAMS, ids=lambda p: p.name)
def test_program(plain, mode):
    owed, inputs = getattr(plain, mode), test_programs.random_inputs(plain.inputs)
    if plain.name in AS_PRODUCTS:
        owed, plain = "exact", named(programs.Host(torch, linear), plain.name)
    function = on_data(named(programs.Host(jnp, linear), plain.name))
    if owed == "refused":
        with pytest.raises(UnsupportedMoments, match="remedy: "):
            run(function, inputs, mode)
        return
    eager = mode == "diagonal" and owed != "exact"
    evaluate = propagate if eager else propagate_compiled
    result, caught = run(function, inputs, mode, evaluate)
    reference, _ = test_programs.run(test_programs.on_data(plain, programs.x), inputs, mode)
    check(result.mean, reference.mean)
    check(result.variance, reference.variance)
    assert bool(caught) == (owed == "warning"), [str(w.message) for w in caught]
    assert all(w.filename in (programs.__file__, __file__) for w in caught)
    if owed == "exact" and result.covariance is not None:
        true = test_programs.exact_moments(test_programs.on_data(plain, programs.x), inputs)
        check(result.covariance, true["covariance"])
