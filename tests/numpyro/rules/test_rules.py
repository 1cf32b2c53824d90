"""The NumPyro front end: primitives are served as the case table says, or refused."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from numpyro_moments import Moments, propagate
from tests.cases import LAYERS
from tests.numpyro.one_program import evaluated
from tests.numpyro.rules.layer_functions import FUNCTIONS

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def test_every_layer_has_a_spelling():
    assert [case.name for case in LAYERS] == list(FUNCTIONS)


def inputs_of(case) -> list:
    """The operands of a row as arguments of ``propagate``."""
    inputs = []
    for operand, arrays in case.grouped(case.example()):
        mean, *spread = map(np.asarray, arrays)
        if operand.kind == "correlated" and case.propagation.has_full_covariance:
            inputs.append(Moments(mean, covariance=spread[0] @ spread[0].mT))
        else:
            inputs.append(Moments(mean, variance=spread[0] ** 2) if operand.random else mean)
    return inputs


@functools.cache
def with_full_covariances() -> dict[str, Moments]:
    """Moments of all rows with full covariances, by one program: each by itself takes longer."""
    rows = [case for case in LAYERS if case.propagation.has_full_covariance]

    def program(inputs):
        return {
            name: propagate(FUNCTIONS[name], *operands, covariance="full")
            for name, operands in inputs.items()
        }

    return evaluated(program, {case.name: inputs_of(case) for case in rows})


def moments_of(case) -> Moments:
    if case.propagation.has_full_covariance:
        return with_full_covariances()[case.name]
    return propagate(FUNCTIONS[case.name], *inputs_of(case), covariance="diagonal")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case.name)
def test_layer(case):
    with jax.enable_x64(True):
        result = moments_of(case)
    expected = case.outputs(*case.example())
    np.testing.assert_allclose(result.mean, expected["mean"], **EXACT)
    np.testing.assert_allclose(result.variance, expected["variance"], **EXACT)
    same_features = result.covariance is not None and result.covariance.shape == (
        expected["covariance"].shape
    )
    if same_features:  # a vector of inputs carries a covariance, that of a site is not stored
        np.testing.assert_allclose(result.covariance, expected["covariance"], **EXACT)
