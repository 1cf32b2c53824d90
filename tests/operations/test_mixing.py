"""Every layer of the case table that mixes dependent values has every property."""

import pytest

from tests.cases.mixing import MIXING
from tests.checks.general import GENERAL, meetings


@pytest.mark.filterwarnings("ignore::moment_calculus.errors.DependenceWarning")
@pytest.mark.parametrize(("check", "case"), meetings(GENERAL, MIXING))
def test_property(check, case):
    check(case)
