"""Covariances of components of one value: pairs on grids are those at their distances."""

import numpy as np
import pytest

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.operations.windows.pooling import Windows
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.lags import Along, Pairs, lag_covariance
from tests.cases.windows import convolve, over_last, pooled

GENERATOR = np.random.default_rng(0)


def gaussian(name, *shape):
    mean, variance = GENERATOR.normal(size=shape), GENERATOR.uniform(0.1, 0.5, shape)
    return as_value(Moments(mean, variance=variance), name, propagation_of("diagonal", "exact"))


def convolutions(stride=1, dilation=1):
    x = GENERATOR.normal(size=(3, 2, 40))
    first = add(convolve(x, gaussian("w", 4, 2, 3), stride, dilation), gaussian("b", 4, 1))
    hidden = apply(activation("relu"), first).gaussian()
    return hidden, convolve(hidden, gaussian("u", 2, 4, 3), stride, dilation)


VALUES = {
    "relu of a convolution": lambda: convolutions()[0],
    "strides": lambda: convolutions(2, 1)[0],
    "of hidden values": lambda: convolutions()[1],
    "of hidden values, dilated": lambda: convolutions(1, 2)[1],
    "of hidden values, strides": lambda: convolutions(2, 1)[1],
    "sums over windows": lambda: pooled(convolutions()[0], 2, 2),
}
PAIRS = {
    "of a window": lambda shape: over_last(3, 3).pairs(shape),
    "dilated": lambda shape: over_last(2, 4, dilation=2).pairs(shape),
    "of two windows": lambda shape: over_last(2, 2).pairs_apart((0, 0, -1), shape),
    "of two rows": lambda shape: over_last(2, 2).pairs_apart((1, 0, 1), shape),
    "of other rows only": lambda shape: Windows((2, 1, 1), (2, 1, 1), (1, 1, 1)).pairs(shape),
}


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("name", VALUES)
def test_pairs_are_those_at_their_distances(name, pairs):
    value = VALUES[name]()
    chosen = PAIRS[pairs](value.shape)
    found = np.asarray(chosen.covariances(value))
    assert found.shape == (len(chosen.kinds), *chosen.counts)
    for (first, second), offset, covariance in zip(
        chosen.kinds, chosen.offsets, found, strict=True
    ):
        start = tuple(map(min, chosen.starts[first], chosen.starts[second]))
        lagged = np.asarray(lag_covariance(value, offset))
        (expected,) = Pairs((start,), (), chosen.strides, chosen.counts).grids(lagged)
        np.testing.assert_allclose(covariance, expected, rtol=1e-12, atol=1e-14)
    assert np.abs(found).max() > 0 or "rows" in pairs


@pytest.mark.parametrize("apart", [-2, 1])
@pytest.mark.parametrize("chosen", [slice(None, None, -1), slice(30, 4, -3), slice(3, None, 2)])
def test_slices_keep_the_covariances_of_their_elements(chosen, apart):
    value = VALUES["relu of a convolution"]()
    places = np.arange(value.shape[-1])[chosen]
    found = np.asarray(lag_covariance(index(value, (..., chosen)).gaussian(), (0, 0, apart)))
    for k, (first, second) in enumerate(zip(places, places[abs(apart) :], strict=False)):
        lagged = np.asarray(lag_covariance(value, (0, 0, abs(int(second - first)))))
        np.testing.assert_allclose(found[..., k], lagged[..., min(first, second)])


def test_what_a_function_adds_along_an_axis_is_that_at_each_distance():
    """Three functions of one Gaussian at five positions: all pairs at once, or by distances."""
    moments = GENERATOR.normal(size=(3, 1)), GENERATOR.uniform(0.1, 0.5, (3, 1))
    scalars = site_value("w", *moments, propagation_of("full", "exact"), event_dim=0)
    positions = broadcast(scalars, (3, 5))
    value = apply(activation("tanh"), scale_shift(positions, GENERATOR.uniform(1, 2, (3, 5))))
    value = value.gaussian()
    whole = value.step.own_along(value, along := Along(-1))
    for apart in range(1, 5):
        lagged = value.step.own_lag(value, (0, apart), False)
        np.testing.assert_allclose(along.at(whole, apart), lagged, rtol=1e-12)
