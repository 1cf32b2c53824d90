"""The NumPyro front end: primitives are served as the case table says, or refused."""

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


@pytest.mark.filterwarnings("error")
def test_layers():
    """By one program: each by itself takes longer."""
    cases = {case.name: case for case in LAYERS}

    def program(inputs):
        return {
            name: propagate(
                FUNCTIONS[name], *operands, covariance=cases[name].propagation.covariance
            )
            for name, operands in inputs.items()
        }

    with jax.enable_x64(True):
        results = evaluated(program, {name: inputs_of(case) for name, case in cases.items()})
    for name, result in results.items():
        expected = cases[name].outputs(*cases[name].example())
        for part, exact in expected.items():
            found = getattr(result, part)
            # a vector of inputs carries a covariance, that of a site is not stored
            if part != "covariance" or (found is not None and found.shape == exact.shape):
                np.testing.assert_allclose(found, exact, **EXACT, err_msg=f"{part} of {name}")
