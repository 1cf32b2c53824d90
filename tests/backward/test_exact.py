"""Linear programs against J V Jᵀ, which is exact for them, and networks against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from moment_calculus.values.backward import residuals
from tests.backward.cases import (
    by_derivatives,
    by_reference,
    expected_modes,
    of_modes,
)
from tests.backward.programs import CASES

SMALL = 1e-5


def check_equal(value, covariance, rtol=1e-10, atol=1e-12):
    """All that can be asked of a value, from the covariance of all its elements."""
    expected = expected_modes(value, covariance.detach())
    found = of_modes(value)
    assert found.keys() == expected.keys()
    for mode, array in found.items():
        size = np.abs(expected[mode]).max()
        np.testing.assert_allclose(array, expected[mode], rtol, atol * size, err_msg=mode)


@pytest.mark.parametrize("case", [c for c in CASES if c.linear], ids=lambda case: case.name)
def test_linear_programs_are_exact(case):
    check_equal(case.result(), by_derivatives(case, 0.6))


@pytest.mark.parametrize("case", [c for c in CASES if not c.linear], ids=lambda case: case.name)
def test_small_variances(case):
    """Of second order is what the square of a standard deviation of 1e-5 leaves."""
    check_equal(case.result(SMALL), by_derivatives(case, SMALL), 1e-5, 1e-5)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.reference and not c.linear], ids=lambda case: case.name
)
def test_networks_are_those_of_the_reference(case, monkeypatch):
    """At variances that make every term as large as the others.

    What steps add at two positions together is left out, as in the reference: see
    test_positions.py.
    """
    monkeypatch.setattr(residuals, "MOST_OFFSETS", -1)
    check_equal(case.result(), by_reference(case, 0.6))
