"""The sweep backwards beside the reference, derivatives and draws."""

import contextlib
import warnings
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.values.backward import asked, narrow, residuals
from pyro_moments import Moments
from pyro_moments.prediction import propagate
from tests.backward.cases import (
    by_derivatives,
    by_reference,
    expected_modes,
    of_all_elements,
    of_modes,
)
from tests.backward.programs import CASES
from tests.checks.marks import IN_PYRO
from tests.criticism.test_moment_accuracy import X, Y, accuracy, network
from tests.fuzzer.programs import SCALE, generate_without_gates

SMALL = 1e-5


def wide(one):
    """An input of the fuzzer with large standard deviations."""
    spread = "variance" if one.covariance is None else "covariance"
    array = torch.as_tensor(getattr(one, spread) * (0.5 / SCALE) ** 2)
    return Moments(torch.as_tensor(one.mean.copy()), **{spread: array})


def slow_range(*bounds):
    return range(*bounds)


def check_equal(value, covariance, rtol=1e-10, atol=1e-12):
    """All that can be asked of a value, from the covariance of all its elements."""
    expected = expected_modes(value, covariance.detach())
    found = of_modes(value)
    assert found.keys() == expected.keys()
    for mode, array in found.items():
        size = np.abs(expected[mode]).max()
        np.testing.assert_allclose(array, expected[mode], rtol, atol * size, err_msg=mode)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_apart_are_those_of_all_elements(case):
    value = case.result()
    if not asked.is_exact(value):
        check_equal(value, of_all_elements(value))


def values_of(seeds):
    """Results of the fuzzer's programs at large standard deviations."""
    found: list = []
    keep = lambda value: found.append(value.gaussian())  # noqa: E731
    with patch.object(propagate, "moments_with_attribution", keep), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for program in map(generate_without_gates, seeds):
            inputs = [wide(one) for one in program.inputs.values()]
            with contextlib.suppress(UnsupportedMoments):
                propagate.propagate(program.function("torch"), *inputs, covariance="backward")
    return [value for value in found if not asked.is_exact(value)]


def check_rows(values):
    """Without the terms of few inputs, which a move before the step of its source may hide."""
    alone = patch.object(narrow, "few_inputs", lambda _: None)
    for value in values:
        with contextlib.suppress(UnsupportedMoments), alone:
            check_equal(value, of_all_elements(value), 1e-9, 1e-9)


REPEATING = [1246]  # with elements that are repeated behind a function


PADDED = [1563]  # a sum of positive values


@pytest.mark.parametrize(
    "seeds", [[*range(30), *REPEATING, *PADDED], slow_range(30, 600)], ids=["few", "many"]
)
def test_rows_of_random_programs(seeds):
    values = values_of(seeds)
    assert len(values) > 0.4 * len(seeds)
    check_rows(values)


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
def test_networks_are_those_of_the_reference(case):
    """At variances that make every term as large as the others.

    What activations add together, at positions of a row or behind few inputs, is not in the
    reference.
    """
    alone = patch.object(narrow, "few_inputs", lambda _: None)
    with alone, patch.object(residuals, "_between", lambda *_, **__: None):
        check_equal(case.result(), by_reference(case, 0.6))


def test_inputs_explain_no_more_than_cancelling_terms_leave():
    x = Moments(torch.tensor([-1.29, 1.27]), variance=torch.tensor([2.7e-4, 1.3e-4]))
    function = lambda x: F.softplus(x - 0.93 * x[1:])  # noqa: E731
    backward, full = (
        propagate.propagate(function, x, covariance=mode).variance for mode in ("backward", "full")
    )
    torch.testing.assert_close(backward, full)


SHAPES = {"weight0": (3, 8), "weight1": (8, 8), "weight2": (8, 8), "weight": (8, 1)}
ONE_SIGN = {name: np.full(shape, 0.4) for name, shape in SHAPES.items()}
ONE_SIGN |= {f"bias{place}": np.full(8, 0.5) for place in range(3)}


def measured(host, *functions, **options):
    options = {"init_scale": 0.1, "values": ONE_SIGN, "num_samples": 2000, **options}
    return accuracy(host, network(host, *functions), X, Y, **options)


def test_every_row_is_accurate(host):
    """Three layers whose weights have one sign, so that units depend on each other."""
    result = measured(host, "relu", "relu", "relu", covariance="backward")
    assert "obs.loc" in {row.label for row in result}
    assert all(row.is_accurate for row in result), result.sentence
    ratio = result["obs.loc"].measures.deviation_ratio
    assert abs(ratio.value - 1) < 0.03 + 4 * ratio.standard_error
    reasons = [row.reason for row in result]
    assert any("expected derivatives" in reason for reason in reasons)
    assert not any("diagonal" in reason for reason in reasons)


@IN_PYRO
@pytest.mark.parametrize("function", ["relu", "tanh"])
def test_the_diagonal_is_far_off_there(host, function):
    backward, diagonal = (
        measured(host, *[function] * 3, covariance=covariance)["obs.loc"].measures.deviation_ratio
        for covariance in ("backward", "diagonal")
    )
    assert diagonal.value < 0.85
    assert abs(backward.value - 1) < 0.2 * abs(diagonal.value - 1) + 4 * backward.standard_error
