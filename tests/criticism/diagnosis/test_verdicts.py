"""Verdicts about linear response, priors, joint weights and single data, against the truth."""

import numpy as np
import pytest

from moment_inference.criticism.diagnosis.findings import Verdict
from tests.criticism.containers.programs import doubles, fresh
from tests.response.eight_schools import SIGMA, Y, schools


@pytest.fixture
def host():
    """One of both, as they share what is said."""
    return fresh("pyro")


def diagnosed(host, model, *data, num_samples=4000):
    with doubles(host):
        arrays = [host.array(part) for part in data]
        result = host.package.fit(model, host.package.DVIGuide(), *arrays, method="newton")
        options = {"verbose": False, "num_samples": num_samples}
        return host.package.diagnose(model, result, *arrays, **options)


def test_linear_response_that_is_too_wide_is_called_so(host):
    found = diagnosed(host, schools(host), SIGMA, Y)
    finding = found["standard deviations of linear response"]
    assert finding.verdict is Verdict.BAD
    assert "'tau' on its support by a factor of 1." in finding.meaning
    assert "too wide" in finding.meaning
    assert "importance_weights=True" in finding.remedy
    narrow = found["standard deviations"]  # that of τ is 0.65 to 0.8 of the posterior's
    assert "'tau'" in narrow.meaning
    assert "importance_weights=True" in narrow.remedy
    assert "use linear_response" not in str(found)
    assert not found.is_good


def located(host, prior=1.0):
    def model(y):
        mu = host.language.sample("mu", host.dist.Normal(0.0, prior))
        host.observe(y, host.dist.Normal(mu, 1.0), y)

    return model


@pytest.mark.parametrize(
    ("shift", "prior", "verdict"),
    [(1.5, 1.0, Verdict.GOOD), (8.0, 1000.0, Verdict.GOOD), (8.0, 1.0, Verdict.BAD)],
)
def test_a_prior_that_data_contradict_is_bad(host, shift, prior, verdict):
    y = np.random.default_rng(0).normal(size=30)
    found = diagnosed(host, located(host, prior), y + shift, num_samples=1000)
    assert found["prior"].verdict is verdict
    assert found.is_good == (verdict is Verdict.GOOD)
    if verdict is Verdict.BAD:  # of mean shift, over the deviation sqrt(1 - 1/31)
        distance = (y.mean() + shift) * 30 / 31 / np.sqrt(30 / 31)
        said = found["prior"].value.split()[3]
        assert float(said) == pytest.approx(distance, rel=0.1)  # by a thousand draws of the prior


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_extreme_p_values_of_replicated_data_are_bad(host, sign):
    y = np.random.default_rng(0).normal(size=30)
    y[4] = 9.0
    found = diagnosed(host, located(host, prior=10.0), sign * y, num_samples=1000)
    assert found["replicated obs"].verdict is Verdict.BAD
    assert not found.is_good
    assert "(4,)" in found["leave one out of obs"].meaning


def test_the_most_influential_datum_is_named_where_all_is_good(host):
    y = np.random.default_rng(0).normal(size=30)
    y[11] = 4.5
    found = diagnosed(host, located(host), y, num_samples=1000)["leave one out of obs"]
    assert found.verdict is Verdict.GOOD
    assert "the most influential datum is (11,), k̂" in found.meaning
