"""Nested inference of many kinds of models, beside a million draws of their priors."""

import json

import jax
import numpy as np
import pytest

from tests.fitting.models import fresh
from tests.nested.kinds import KINDS, X
from tests.nested.kinds_by_draws import PATH, by_draws

CASES = [(make, host) for make, (hosts, _) in KINDS.items() for host in hosts]
EXPECTED = json.loads(PATH.read_text())


def posterior_of(make, name):
    """The posterior of a model in a host."""
    host = fresh(name)
    data = (host.array(each) for each in (X, KINDS[make][1]))
    return host.package.nested(lambda x, y: make(host, x, y), *data)


@pytest.mark.parametrize(
    ("make", "host"), CASES, ids=[f"{make.__name__}-{host}" for make, host in CASES]
)
def test_models_have_the_evidence_and_moments_of_draws(make, host):
    posterior, expected = posterior_of(make, host), EXPECTED[make.__name__]
    allowed = posterior.log_evidence_error + 4 * expected["standard error"]
    assert expected["effective draws"] > 5000
    assert abs(posterior.log_evidence - expected["log evidence"]) < allowed
    for site in {*posterior.hyperparameters, *posterior.field} & {*expected["sites"]}:
        mean, deviation = map(np.array, expected["sites"][site])
        varies, marginal = deviation > 0, posterior.marginal(site)
        error = np.abs(marginal.mean - mean)[varies] / deviation[varies]
        assert error.max() < 0.05
        ratio = marginal.standard_deviation[varies] / deviation[varies]
        assert np.abs(np.log(ratio)).max() < 0.05


@pytest.mark.parametrize("make", [make for make in KINDS if make.__name__ == "plain"])
def test_the_draws_are_those_of_the_file(make):
    with jax.enable_x64(True):
        found, expected = by_draws(make, KINDS[make][1], blocks=4), EXPECTED[make.__name__]
    error = 4 * found["standard error"]
    assert found["log evidence"] == pytest.approx(expected["log evidence"], abs=error)
