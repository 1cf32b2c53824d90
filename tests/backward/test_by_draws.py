"""Networks against draws: every row of moment_accuracy, to its Monte Carlo error."""

import numpy as np
import pytest

from tests.checks.marks import IN_PYRO
from tests.criticism.test_moment_accuracy import X, Y, accuracy, network

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
