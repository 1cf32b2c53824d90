"""Every layer of the case table has every property."""

import numpy as np
import pytest

from tests.cases import LAYERS
from tests.cases.normalisations import NORMALISATIONS
from tests.checks.general import GENERAL, check_oracle, meetings

# No row loses covariance, so none may warn that it does.
pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize(("check", "case"), meetings([check_oracle, *GENERAL], LAYERS))
def test_property(check, case):
    check(case)


@pytest.mark.parametrize(("check", "case"), meetings(GENERAL, NORMALISATIONS))
def test_property_of_an_approximation(check, case):
    check(case)


@pytest.mark.parametrize("case", LAYERS + NORMALISATIONS, ids=lambda case: case.name)
def test_covariance_is_symmetric_positive_semi_definite(case):
    for by in (1e-3, 1.0, 30.0):
        covariance = case.outputs(*case.shrunk(case.example(), by))["covariance"]
        np.testing.assert_allclose(covariance, np.swapaxes(covariance, -1, -2), rtol=1e-12)
        values = np.linalg.eigvalsh(covariance)
        assert np.all(values[..., 0] >= -1e-6 * values[..., -1])
