"""Calibration of classes, against scikit-learn, by hand and in repetitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from pyro_moments import ClassCalibration, calibration
from tests.criticism.predicted import HOSTS, LOC, SIZE, in_double, predicted

LOGITS = np.random.default_rng(0).normal(size=(SIZE, 3))
PROBS = scipy.special.softmax(LOGITS, -1)
LABELS = (np.random.default_rng(1).uniform(size=(SIZE, 1)) > PROBS.cumsum(-1)).sum(-1)
ONES = (np.random.default_rng(2).uniform(size=SIZE) < scipy.special.expit(LOC)).astype(int)


@pytest.fixture(autouse=True)
def _double():
    with in_double():
        yield


@pytest.mark.parametrize("host", HOSTS)
def test_binary_outcomes_as_scikit_learn(host):
    found = calibration(predicted(host, "Bernoulli", logits=2 * LOC), ONES)
    probability = scipy.special.expit(2 * LOC)
    assert isinstance(found, ClassCalibration)
    assert found.accuracy == ((probability > 0.5) == ONES).mean()
    assert found.brier_score == pytest.approx(brier_score_loss(ONES, probability))
    assert found.log_score == pytest.approx(-log_loss(ONES, probability))
    bins, (frequency, mean) = (
        found.reliability(7, of=1),
        calibration_curve(ONES, probability, n_bins=7),
    )
    full = bins.count > 0
    np.testing.assert_allclose(bins.accuracy[full], frequency)
    np.testing.assert_allclose(bins.confidence[full], mean)
    assert "overconfident" in found.verdict()
    assert repr(found) == "ClassCalibration('y', observations=300)"


@pytest.mark.parametrize(("host", "dtype"), [("pyro", np.float32), ("numpyro", np.float64)])
def test_classes_as_scikit_learn(host, dtype):
    found = calibration(predicted(host, "Categorical", logits=LOGITS.astype(dtype)), LABELS)
    assert found.log_score == pytest.approx(-log_loss(LABELS, PROBS), rel=1e-5)
    hit = np.eye(3)[LABELS]
    assert found.brier_score == pytest.approx(((PROBS - hit) ** 2).sum(-1).mean(), rel=1e-5)
    bins, right = 5, PROBS.argmax(-1) == LABELS

    def by_hand(probability, hit):
        place = np.ceil(probability * bins)
        parts = [place == i for i in range(1, bins + 1)]
        return sum(abs((hit[p] - probability[p]).sum()) for p in parts) / SIZE

    expected = by_hand(PROBS.max(-1), right)
    assert found.expected_calibration_error(bins) == pytest.approx(expected, rel=1e-5)
    each = np.mean([by_hand(PROBS[:, k], k == LABELS) for k in range(3)])
    classwise = found.expected_calibration_error(bins, classwise=True)
    assert classwise == pytest.approx(each, rel=1e-5)
    assert found.accuracy == right.mean()
    assert "within chance" in found.verdict()


def test_ordered_classes_and_particles():
    cuts = np.array([-0.5, 0.8])
    ordered = calibration(predicted("pyro", "OrderedLogistic", LOC, cuts), LABELS)
    below = scipy.special.expit(cuts - LOC[:, None])
    probs = np.diff(below, axis=-1, prepend=0, append=1)
    assert ordered.log_score == pytest.approx(np.log(probs[range(SIZE), LABELS]).mean())
    logits = np.stack([LOGITS, -LOGITS, 2 * LOGITS])
    mixture = predicted("pyro", "Categorical", logits=logits, kind="SampledPrediction")
    found, mean = calibration(mixture, LABELS), scipy.special.softmax(logits, -1).mean(0)
    np.testing.assert_allclose(found.probs, mean, rtol=1e-9)
    assert found.log_score == pytest.approx(np.log(mean[range(SIZE), LABELS]).mean())


def test_an_event_of_independent_elements_counts_each():
    prediction = predicted("pyro", "Bernoulli", logits=LOC.reshape(100, 3))
    flat = calibration(predicted("pyro", "Bernoulli", logits=LOC), ONES)
    found = calibration(prediction, ONES.reshape(100, 3))
    assert found.accuracy == flat.accuracy
    assert found.brier_score == pytest.approx(flat.brier_score)


def test_errors_by_chance_and_without_it():
    """Means over repetitions: of right probabilities, and of 0.6 in place of 0.7."""
    draw, size, rounds = np.random.default_rng(3), 400, 200
    sure = draw.uniform(0.5, 1, size)
    right, wrong = (
        predicted("pyro", "Bernoulli", probs=probs) for probs in (sure, np.full(size, 0.6))
    )
    of_right, squares, chance = [], [], 0.0
    for _ in range(rounds):
        found = calibration(right, draw.uniform(size=size) < sure).reliability(of=1)
        of_right.append(found.calibration_error)
        chance = found.chance_error
        bins = calibration(wrong, draw.uniform(size=size) < 0.7).reliability(of=1)
        squares.append(bins.debiased_error**2)
    error = np.std(of_right) / np.sqrt(rounds)
    assert abs(np.mean(of_right) - chance) < 5 * error + 0.02 * chance
    error = np.std(squares) / np.sqrt(rounds)
    assert abs(np.mean(squares) - 0.01) < 5 * error


def test_reliability_says_how_sure_it_is():
    probs = np.array([0.05, 0.25, 0.29, 0.95, 1.0])
    found = calibration(predicted("pyro", "Bernoulli", probs=probs), [0, 0, 1, 1, 1])
    bins = found.reliability(10, of=1)
    np.testing.assert_array_equal(bins.count, [1, 0, 2, 0, 0, 0, 0, 0, 0, 2])
    np.testing.assert_allclose(bins.confidence[[0, 2, 9]], [0.05, 0.27, 0.975])
    np.testing.assert_allclose(bins.accuracy[[0, 2, 9]], [0.0, 0.5, 1.0])
    expected = np.sqrt(0.25 * 0.75 + 0.29 * 0.71) / 2
    np.testing.assert_allclose(bins.standard_error[2], expected)
    assert np.isnan(bins.accuracy[1])
    assert len(str(bins).splitlines()) == 4
    text = str(found)
    for name in ("accuracy", "Brier score", "calibration error", "by chance", "probability"):
        assert name in text


def test_certain_classes():
    found = calibration(predicted("pyro", "Bernoulli", probs=np.array([0.0, 1.0])), [0, 1])
    assert (found.accuracy, found.brier_score) == (1, 0)
    assert found.log_score == pytest.approx(0, abs=1e-12)
    assert "within chance" in found.verdict()


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.full(SIZE, 3), "3; classes are indices 0 to 2"),
        (np.full(SIZE, -1), "-1; classes are indices 0 to 2"),
        (np.full(SIZE, 0.5), "300 of 300 observations are no class"),
        (np.eye(3)[LABELS], r"shape \(300, 3\), their predictions \(300,\)"),
        (np.full(SIZE, np.nan), "observations are NaN"),
    ],
)
def test_wrong_labels_are_refused(y, said):
    with pytest.raises(ValueError, match=said):
        calibration(predicted("pyro", "Categorical", logits=LOGITS), y)


def test_wrong_bins_and_classes_are_refused():
    found = calibration(predicted("pyro", "Categorical", logits=LOGITS), LABELS)
    for bins in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="positive integer"):
            found.reliability(bins)
    for of in (3, -1, True):
        with pytest.raises(ValueError, match="class between 0 and 2"):
            found.reliability(of=of)
