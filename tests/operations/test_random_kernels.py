"""Convolutions of certain inputs with a kernel whose elements depend on each other."""

import numpy as np

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.shapes.reshaping import broadcast, reshape
from moment_calculus.operations.windows.convolution import ConvolutionLayout, convolution
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of

SPENT = np.random.default_rng(0).gamma(2.0, size=12)
LAGS = np.arange(4.0)
WINDOWS = np.lib.stride_tricks.sliding_window_view(SPENT, 4)


def test_a_convolution_with_a_random_kernel_is_the_linear_map():
    """As of ``share ** lags``, a function of one Gaussian for each lag."""
    moments = Moments(np.array([-0.5]), variance=np.array([0.3]))
    log_share = as_value(moments, "share", propagation_of("full", "exact"))
    powers = apply(activation("exp"), scale_shift(broadcast(log_share, (4,)), LAGS)).gaussian()
    weight = reshape(powers, (1, 1, 4))

    def kernel(x, w):
        return np.lib.stride_tricks.sliding_window_view(x, 4) @ w[0, 0]

    found = convolution(SPENT, weight, kernel, ConvolutionLayout((), None, -1, 0))
    expected = linear(powers, WINDOWS)
    np.testing.assert_allclose(found.mean, expected.mean)
    np.testing.assert_allclose(found.variance, expected.variance)
    np.testing.assert_allclose(found.covariance, expected.covariance)
