"""Shares of the variance of every program: they sum to it, and are those of the reference."""

from collections import defaultdict
from unittest.mock import patch

import pytest
import torch

from moment_calculus.operations.backward.shares import COVARIANCE, SITE, shares_of
from moment_calculus.values.backward import asked, residuals
from tests.backward.cases import referred
from tests.backward.programs import CASES

REFERENCES = [case for case in CASES if case.reference and not case.linear]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shares_sum_to_the_variance(case):
    """Weights that enter as noise of their layer are pulled back one by one for the shares."""
    value = case.result()
    if not asked.is_exact(value):
        total = sum(share.variance for share in shares_of(value))
        torch.testing.assert_close(total, asked.variance(value), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("case", REFERENCES, ids=lambda case: case.name)
def test_shares_of_sites_are_those_of_the_reference(case):
    """The first noises of the reference are those of the sites."""
    vocabulary, result = referred(case, 0.6)
    with patch.object(residuals, "_between", lambda *_, **__: None):
        found: dict = defaultdict(float)
        for share in shares_of(case.result()):
            if share.kind in (SITE, COVARIANCE):
                found[share.name] += share.variance
    noises = vocabulary.noises
    for place, name in enumerate(case.sites):
        vocabulary.noises = noises[place : place + 1]
        expected = vocabulary.covariance(result).diagonal().reshape(found[name].shape)
        torch.testing.assert_close(found[name], expected.detach(), rtol=1e-9, atol=1e-13)
