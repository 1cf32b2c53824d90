"""Calibration of continuous quantities and counts, against SciPy and in repetitions."""

import numpy as np
import pytest
import scipy.stats
from scipy.integrate import quad

from moment_inference.criticism.calibration.calibration import normal_crps
from numpyro_moments import calibration as of_numpyro
from pyro_moments import Calibration, UnsupportedMoments, calibration
from tests.criticism.predicted import ARRAYS, LOC, SCALE, SIZE, predicted

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")
LAW = scipy.stats.norm(LOC, SCALE)
MASSES = (0.5, 0.8, 0.9, 0.95)


# Of one observation in each of as many equally probable intervals: no chance is in it.
NOISE = scipy.stats.norm.ppf((np.random.default_rng(1).permutation(SIZE) + 0.5) / SIZE)


def normal(stretch=1.0, *, host="pyro", shift=0.0, dtype=np.float64):
    """Observations whose noise is so many times that predicted, and their calibration."""
    y = LOC + SCALE * (stretch * NOISE + shift)
    prediction = predicted(host, "Normal", LOC.astype(dtype), SCALE.astype(dtype))
    return calibration(prediction, y), y


def test_both_front_ends_have_the_same_function():
    assert of_numpyro is calibration


@pytest.mark.parametrize(
    ("host", "dtype"), [("pyro", np.float32), ("pyro", np.float64), ("numpyro", np.float64)]
)
def test_scores_of_normal_predictions(host, dtype):
    found, y = normal(1.3, host=host, dtype=dtype)
    close = {"rtol": 1e-5 if dtype == np.float32 else 1e-12}
    np.testing.assert_allclose(found.pit, LAW.cdf(y), atol=1e-6 if dtype == np.float32 else 1e-12)
    np.testing.assert_allclose(found.log_score, LAW.logpdf(y).mean(), **close)
    several = ARRAYS[host](np.stack([y, y]).astype(dtype))  # log_prob broadcasts
    np.testing.assert_allclose(found.prediction.log_prob(several).mean(), found.log_score, **close)
    np.testing.assert_allclose(found.rmse, np.sqrt(((y - LOC) ** 2).mean()), **close)
    width, deviation = found.sharpness(0.8)
    np.testing.assert_allclose(width, (LAW.ppf(0.9) - LAW.ppf(0.1)).mean(), **close)
    np.testing.assert_allclose(deviation, SCALE.mean(), **close)
    coverage = found.coverage(MASSES)
    shares = [((LAW.interval(m)[0] <= y) & (y <= LAW.interval(m)[1])).mean() for m in MASSES]
    np.testing.assert_allclose(coverage.observed, shares)
    np.testing.assert_array_equal(coverage.expected, MASSES)
    error = np.sqrt(np.multiply(shares, np.subtract(1, shares)) / SIZE)
    np.testing.assert_allclose(coverage.standard_error, error)
    assert isinstance(found, Calibration)
    assert repr(found) == "Calibration('y', observations=300)"


def test_continuous_ranked_probability_score_is_its_integral():
    for y, mean, scale in ((0.3, -0.5, 0.7), (4.0, 0.0, 1.5), (-1.0, -1.0, 0.2)):
        law = scipy.stats.norm(mean, scale)
        below = quad(lambda x, law=law: law.cdf(x) ** 2, mean - 12 * scale, y, limit=200)[0]
        above = quad(lambda x, law=law: law.sf(x) ** 2, y, mean + 12 * scale, limit=200)[0]
        found = normal_crps(np.array(y), np.array(mean), np.array(scale**2))
        np.testing.assert_allclose(found, below + above, rtol=1e-7)
    assert normal_crps(np.array(3.0), np.array(1.0), np.array(0.0)) == 2.0
    found, y = normal()
    assert found.crps == pytest.approx(normal_crps(y, LOC, SCALE**2).mean())


@pytest.mark.parametrize(
    ("stretch", "said"), [(1.5, "too narrow"), (0.6, "too wide"), (1.0, "within chance")]
)
def test_words_say_what_is_wrong(stretch, said):
    found, _ = normal(stretch)
    verdict = found.coverage(0.9).verdict()
    assert said in verdict
    assert f"{100 * found.coverage(0.9).observed[0]:.3g} ±" in verdict
    text = str(found)
    assert verdict in text
    assert ("The PIT is uniform" in text) == (stretch == 1.0)
    for name in ("log score", "RMSE", "CRPS", "90 % width", "interval"):
        assert name in text
    rejected = found.uniformity.p_value < 0.05
    assert rejected == (stretch != 1.0)


def test_shifts_show_in_the_uniformity_not_in_wide_intervals():
    found, _ = normal(0.9, shift=0.3)
    assert found.uniformity.p_value < 1e-3
    assert "within chance" in found.coverage(0.9).verdict()


def test_tests_reject_right_predictions_as_often_as_they_say():
    """Of a hundred sets at most fifteen at the level of 5 %: five and 4.6 standard errors."""
    prediction = predicted("pyro", "Normal", LOC, SCALE)
    counts = predicted("pyro", "Poisson", np.exp(LOC))
    draw, rejected = np.random.default_rng(2), np.zeros(3)
    for seed in range(100):
        found = calibration(prediction, draw.normal(LOC, SCALE))
        of_counts = calibration(counts, draw.poisson(np.exp(LOC)), seed=seed)
        p_values = found.uniformity.p_value, found.coverage(0.8).p_value[0]
        rejected += np.array([*p_values, of_counts.uniformity.p_value]) < 0.05
    assert (rejected <= 15).all()
    assert rejected.sum() >= 3


def test_counts():
    law = scipy.stats.poisson(np.exp(LOC))
    y = law.rvs(random_state=3)
    found = calibration(predicted("pyro", "Poisson", np.exp(LOC)), y, seed=5)
    np.testing.assert_allclose(found.up_to, law.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(found.below, law.cdf(y - 1), rtol=1e-9)
    assert ((found.pit >= found.below) & (found.pit <= found.up_to)).all()
    again = calibration(found.prediction, y, seed=5)
    np.testing.assert_array_equal(found.pit, again.pit)
    assert (found.pit != calibration(found.prediction, y, seed=6).pit).any()
    coverage, (low, high) = found.coverage(0.8), law.interval(0.8)
    assert coverage.observed[0] == ((low <= y) & (y <= high)).mean()
    expected = (law.cdf(high) - law.cdf(low - 1)).mean()
    np.testing.assert_allclose(coverage.expected[0], expected)
    assert "of the predictive probability" in coverage.verdict()
    np.testing.assert_allclose(found.log_score, law.logpmf(y).mean(), rtol=1e-9)
    assert "CRPS" not in str(found)


def test_vectors_and_particles():
    root = np.array([[1.0, 0.0], [0.5, 0.2]])
    y = np.random.default_rng(4).normal(size=(50, 2)) @ root.T
    found = calibration(
        predicted("pyro", "MultivariateNormal", np.zeros((50, 2)), scale_tril=root), y
    )
    exact = scipy.stats.norm(0, np.sqrt(np.diag(root @ root.T))).cdf(y)
    np.testing.assert_allclose(found.pit, exact, rtol=1e-9)
    joint = scipy.stats.multivariate_normal(np.zeros(2), root @ root.T)
    np.testing.assert_allclose(found.log_score, joint.logpdf(y).mean(), rtol=1e-6)
    locations = np.array([[-1.0, 0.5], [1.0, 2.0], [0.0, 0.0]])
    mixture = predicted("pyro", "Normal", locations, 0.5, kind="SampledPrediction")
    found = calibration(mixture, [0.2, 0.7])
    exact = scipy.stats.norm(locations, 0.5).cdf([0.2, 0.7]).mean(0)
    np.testing.assert_allclose(found.pit, exact, rtol=1e-9)
    with pytest.raises(UnsupportedMoments, match="not Normal"):
        _ = found.crps


PREDICTION = predicted("pyro", "Normal", LOC, SCALE)
COUNTS = predicted("pyro", "Poisson", SCALE)
TRIALS = np.full(SIZE, 2e8)  # more than probabilities are summed of


@pytest.mark.parametrize(
    ("prediction", "y", "said"),
    [
        (PREDICTION, LOC[:-1], r"shape \(299,\), their predictions \(300,\)"),
        (PREDICTION, LOC[:, None], "predict the rows that were observed"),
        (PREDICTION, np.where(LOC > 2, np.nan, LOC), "are NaN, the first at index"),
        (COUNTS, np.full(SIZE, 0.5), "0.5 is not a whole number between 0 and inf"),
        (COUNTS, np.full(SIZE, -1), "outside the support of the Poisson"),
        (
            predicted("pyro", "Binomial", np.array([9.0, 3.0]), np.array([0.5, 0.5])),
            [4, 4],
            "first at index 1: 4 is not a whole number between 0 and 3",
        ),
        (predicted("pyro", "LogNormal", LOC, SCALE), -SCALE, "outside the support"),
        (predicted("pyro", "Normal", LOC[:0], 1.0), [], "there are no observations"),
        (predicted("pyro", "BetaBinomial", SCALE, SCALE, TRIALS), np.full(SIZE, 1e8), "are NaN"),
    ],
)
def test_wrong_observations_are_refused(prediction, y, said):
    with pytest.raises(ValueError, match=said):
        calibration(prediction, y)


def test_wrong_predictions_and_masses_are_refused():
    with pytest.raises(TypeError, match=r"predict\(…\)\[name\]; it has obs"):
        calibration({"obs": PREDICTION, "mean": LOC}, LOC)
    with pytest.raises(TypeError, match="not of a ndarray"):
        calibration(LOC, LOC)
    with pytest.raises(UnsupportedMoments, match="distribution function of a VonMises"):
        calibration(predicted("pyro", "VonMises", LOC, SCALE), np.zeros(SIZE))
    found, _ = normal()
    for masses in (0.0, 1.0, [0.5, 2.0], [], np.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            found.coverage(masses)
