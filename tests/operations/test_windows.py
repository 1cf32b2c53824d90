"""Every convolution, pool and padding of the case table has every property."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moment_calculus.operations.windows.convolution import ConvolutionLayout, SpatialAxis
from moment_calculus.operations.windows.phases import by_phases
from tests.cases.windows import EXTREMES, WINDOWS
from tests.checks.general import GENERAL, check_oracle, meetings

pytestmark = [
    pytest.mark.filterwarnings("error"),
    # a later step of a full covariance keeps the variances of positions alone, and says so
    pytest.mark.filterwarnings("ignore::moment_calculus.errors.CovarianceDroppedWarning"),
]


@pytest.mark.parametrize(("check", "case"), meetings([check_oracle, *GENERAL], WINDOWS))
def test_property(check, case):
    check(case)


@pytest.mark.parametrize(("check", "case"), meetings(GENERAL, EXTREMES))
def test_property_of_an_extreme(check, case):
    check(case)


@pytest.mark.parametrize("strides", [(2, 2), (3, 1), (1, 4)])
@pytest.mark.parametrize("sizes", [(5, 5), (1, 2), (4, 3)])
def test_phases_sum_to_the_strided_convolution(strides, sizes):
    x = np.random.default_rng(0).normal(size=(2, 4, 12, 11))
    weight = np.random.default_rng(1).normal(size=(6, 2, *sizes))

    def kernel(x, weight, strides=strides):
        return jax.lax.conv_general_dilated(x, weight, strides, "VALID", feature_group_count=2)

    axes = [SpatialAxis(2 + i, 2 + i, 2 + i, stride) for i, stride in enumerate(strides)]
    layout = ConvolutionLayout(tuple(axes), (0, 0), -3, 0, groups=2)
    with jax.enable_x64(True):
        x, weight = jnp.asarray(x), jnp.asarray(weight)
        found, transpose = jax.vjp(lambda x: by_phases(kernel, layout)(x, weight), x)
        expected, plain = jax.vjp(lambda x: kernel(x, weight), x)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_allclose(transpose(expected)[0], plain(expected)[0], atol=1e-12)
