"""Every convolution, pool and padding of the case table has every property."""

from __future__ import annotations

import pytest

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
