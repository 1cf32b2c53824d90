"""Containers of draws that importance weights correct, and leave-one-out without weights."""

from __future__ import annotations

import arviz as az
import numpy as np
import pytest

from moment_calculus.criticism.draws import Draws, resample
from moment_calculus.errors import UnsupportedMoments
from tests.checks.marks import IN_PYRO
from tests.criticism.containers.programs import (
    X,
    Y,
    convert,
    doubles,
    drawing,
    gaussian,
    line,
    seeded,
)


def test_draws_of_a_guide_become_those_of_the_posterior(host):
    mean, covariance = gaussian(X, Y)
    guide = drawing(host, mean, 1.5 * covariance)
    options = {"num_samples": 4000, "num_prior_samples": 0, "importance_weights": True}
    with doubles(host):
        found, again = (
            convert(host, guide, line(host), X, Y, **options, **seeded(host, 3)) for _ in range(2)
        )
    np.testing.assert_array_equal(again.posterior["weight"], found.posterior["weight"])
    weight = found.posterior["weight"].values.reshape(-1, 3)
    np.testing.assert_allclose(np.cov(weight.T), covariance, atol=0.12 * covariance.max())
    assert "resampled" in found.posterior.attrs["source"]


@IN_PYRO
def test_draws_that_weights_cannot_correct_are_refused(host):
    mean, covariance = gaussian(X, Y)
    guide = drawing(host, mean, covariance / 25)
    with doubles(host), pytest.raises(UnsupportedMoments, match="cannot be trusted: their k̂ is"):
        convert(host, guide, line(host), X, Y, importance_weights=True)


def test_what_has_no_weights_is_refused():
    values = {"x": np.zeros((1, 20))}
    arguments = (lambda _: np.zeros(20), np.random.default_rng(0), 5)
    with pytest.raises(ValueError, match="are of the posterior itself"):
        resample(Draws("NUTS", values), *arguments)
    with pytest.raises(ValueError, match="could be made of: of masks"):
        resample(Draws("guide", values, without_density="of masks"), *arguments)


@IN_PYRO
def test_leave_one_out_without_weights_takes_draws_as_the_posteriors(host):
    mean, covariance = gaussian(X, Y)
    guide = drawing(host, mean, covariance / 2)
    with doubles(host):
        data = convert(host, guide, line(host), X, Y, num_samples=2000)
        with pytest.warns(UserWarning, match="Pareto shapes|as a whole"):
            weighted = host.package.loo(data)
        plain = host.package.loo(data, importance_weights=False)
    reference = az.loo(data, pointwise=True, reff=1.0)
    np.testing.assert_allclose(plain.loo_i, reference.loo_i, rtol=1e-9)
    assert weighted.importance_weights
    assert not plain.importance_weights
    assert plain.pareto_k_joint == 0
    assert weighted.effective_joint < 0.9
    assert plain.effective_joint == pytest.approx(1)
