"""A feature axis that is split keeps what it can of its covariance, and says what it cannot."""

import warnings

import numpy as np
import pytest

from moment_calculus.errors import CovarianceDroppedWarning
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values.propagation import Propagation

generator = np.random.default_rng(4)
ROOT = generator.normal(size=(3, 4, 4))
COVARIANCE = ROOT @ ROOT.mT


def value():
    moments = Moments(generator.normal(size=(3, 4)), covariance=COVARIANCE)
    return as_value(moments, "x", Propagation())


@pytest.mark.parametrize("parts", [(2, 2), (2, 1, 2), (1, 2, 2)])
def test_a_split_axis_keeps_the_covariance_of_its_last_part(parts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heads = reshape(value(), (3, *parts))
    weights = np.array([[1.0, -2.0]])
    total = linear(heads, weights)
    for head in range(2):
        inside = slice(2 * head, 2 * head + 2)
        block = COVARIANCE[:, inside, inside]
        np.testing.assert_allclose(heads.joint_covariance().reshape(3, 2, 2, 2)[:, head], block)
        expected = (weights @ block @ weights.T)[:, 0, 0]
        np.testing.assert_allclose(total.variance.reshape(3, 2)[:, head], expected)
    assert not heads.independent
    assert not heads.batch_independent


@pytest.mark.parametrize("shape", [(12,), (6, 2), (2, 6)])
def test_a_merged_axis_says_what_is_lost_and_what_to_do(shape):
    with pytest.warns(CovarianceDroppedWarning, match=r"variances alone; .*covariance='backward'"):
        merged = reshape(value(), shape)
    assert not merged.has_covariance
