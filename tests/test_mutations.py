"""The properties can fail: each wrong rule fails the property that must catch it."""

import functools

import pytest

from tests.checks.activations import ACTIVATION
from tests.checks.general import GENERAL, check_oracle
from tests.mutants.activations import MOMENTS, PAIRS
from tests.mutants.layers import LAYER_MUTANTS, TEMPERED_MUTANTS
from tests.mutants.likelihoods import DIVERGENCE_MUTANTS, LIKELIHOOD_MUTANTS
from tests.mutants.windows import WINDOW_MUTANTS

MUTANTS = [
    *MOMENTS,
    *PAIRS,
    *LAYER_MUTANTS,
    *WINDOW_MUTANTS,
    *LIKELIHOOD_MUTANTS,
    *DIVERGENCE_MUTANTS,
    *TEMPERED_MUTANTS,
]


@functools.cache
def check_original(check, case):
    check(case)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_wrong_rule_is_caught(mutant):
    check_original(mutant.check, mutant.original)
    with pytest.raises(AssertionError):
        mutant.check(mutant.case)


def test_every_property_catches_a_mutant():
    assert {mutant.check for mutant in MUTANTS} == {*ACTIVATION, *GENERAL, check_oracle}
