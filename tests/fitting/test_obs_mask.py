"""Sites with ``obs_mask=``, the frameworks' own way to say that some values are missing.

The oracle is the optimum of a mean-field guide for a Gaussian with a known precision matrix.
"""

import math

import numpy as np
import pytest
from scipy import stats

from moment_calculus.errors import UnsupportedMoments
from moment_inference.optimisation.outcome import Course
from tests.fitting.models import fresh

COUNT, KNOWN = 12, 9
IS_KNOWN = np.arange(COUNT) < KNOWN
Y = np.linspace(0.5, 3, COUNT, dtype=np.float32)
PRECISION = np.eye(1 + COUNT - KNOWN)  # of the mean and of the missing values, given the data
PRECISION[0, 0], PRECISION[0, 1:], PRECISION[1:, 0] = 1 + COUNT, -1, -1


def program(host):
    def model(y):
        mean = host.language.sample("mean", host.dist.Normal(0.0, 1.0))
        with host.language.plate("data", COUNT):
            known = host.np.asarray(IS_KNOWN)
            host.language.sample("y", host.dist.Normal(mean, 1.0), obs=y, obs_mask=known)

    return model


@pytest.fixture(scope="module", params=["pyro", "numpyro"])
def trained(request):
    host = fresh(request.param)
    model, y = program(host), host.array(Y)
    return host, model, y, host.fit(model, y, method="newton")


def test_the_loss_counts_observed_values_once_and_missing_ones_as_latent(trained):
    evidence = stats.multivariate_normal(np.zeros(KNOWN), np.eye(KNOWN) + 1).logpdf(Y[:KNOWN])
    gap = np.log(np.diag(PRECISION)).sum() - np.linalg.slogdet(PRECISION)[1]
    *_, fit = trained
    assert fit.converged
    assert float(fit.loss) == pytest.approx(gap / 2 - evidence, rel=1e-6)


def test_linear_response_knows_means_and_missing_values(trained):
    host, model, y, fit = trained
    response = host.package.linear_response(model, fit, y)
    exact = np.sqrt(np.diag(np.linalg.inv(PRECISION)))
    missing = np.asarray(response.standard_deviation("y_unobserved"))[~IS_KNOWN]
    assert float(response.standard_deviation("mean")) == pytest.approx(exact[0], rel=1e-4)
    np.testing.assert_allclose(missing, exact[1:], rtol=1e-4)


def test_a_guide_that_draws_missing_values_jointly_is_refused(trained):
    host, model, y, _ = trained
    guide = host.autoguide.AutoMultivariateNormal(model)
    with pytest.raises(UnsupportedMoments, match="'y' has an obs_mask"):
        host.package.fit(model, guide, y, steps=1)


@pytest.mark.parametrize(("loss", "words"), [(-math.inf, "no lower bound"), (math.inf, "is inf")])
def test_an_infinite_loss_never_counts_as_converged(loss, words):
    course = Course([1.0, loss])
    course.stop(True, "the Newton decrement is 1e-15")
    assert not course.converged
    assert course.reason.startswith("stopped: ")
    assert words in course.reason
