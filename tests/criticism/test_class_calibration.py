"""Calibration of classes, against scikit-learn, by hand and in repetitions."""

import sys

import matplotlib
import numpy as np
import pytest
import scipy.special
import scipy.stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from moment_inference import display
from moment_inference.criticism import arviz_access
from pyro_moments import ClassCalibration, calibration
from tests.criticism.predicted import LOC, SCALE, SIZE, predicted

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")
LOGITS = np.random.default_rng(0).normal(size=(SIZE, 3))
PROBS = scipy.special.softmax(LOGITS, -1)
LABELS = (np.random.default_rng(1).uniform(size=(SIZE, 1)) > PROBS.cumsum(-1)).sum(-1)
ONES = (np.random.default_rng(2).uniform(size=SIZE) < scipy.special.expit(LOC)).astype(int)


def test_binary_outcomes_as_scikit_learn():
    found = calibration(predicted("pyro", "Bernoulli", logits=2 * LOC), ONES)
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


Y = np.random.default_rng(0).normal(LOC, 1.4 * SCALE)
NORMAL = calibration(predicted("pyro", "Normal", LOC, SCALE), Y)
COUNTS = np.random.default_rng(1).poisson(np.exp(LOC))
POISSON = calibration(predicted("pyro", "Poisson", np.exp(LOC)), COUNTS)
BINARY = calibration(predicted("pyro", "Bernoulli", logits=2 * LOC), ONES)
DRAWN = [NORMAL.plot_pit, NORMAL.plot_coverage, POISSON.plot_pit, POISSON.plot_coverage]
DRAWN += [BINARY.plot_reliability, lambda axes=None: BINARY.plot_reliability(axes, of=1)]


@pytest.fixture
def pyplot():
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize("draw", DRAWN)
def test_axes_are_labelled_and_render(pyplot, draw, tmp_path):
    own = pyplot.subplots()[1]
    assert draw(own) is own
    axes = draw()
    assert axes is not own
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"95 % by chance", "observed"} < set(labels)
    axes.figure.savefig(tmp_path / "picture.png", dpi=30)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def heights(axes):
    from matplotlib.patches import StepPatch

    return next(patch.get_data().values for patch in axes.patches if isinstance(patch, StepPatch))


def test_histogram_of_the_transform(pyplot):
    expected = np.histogram(NORMAL.pit, 8, (0, 1), density=True)[0]
    np.testing.assert_allclose(heights(NORMAL.plot_pit(bins=8)), expected)
    band = NORMAL.plot_pit(bins=8).collections[0].get_paths()[0].vertices[:, 1]
    allowed = scipy.stats.binom.interval(0.95, SIZE, 1 / 8)
    np.testing.assert_allclose((band.min(), band.max()), np.array(allowed) / SIZE * 8)


def test_histogram_of_counts_is_not_randomised(pyplot):
    """Against the mean of randomised ones, all shares as often."""
    found = heights(POISSON.plot_pit(bins=5))
    low, high = POISSON.below, POISSON.up_to
    drawn = low + (np.arange(1000)[:, None] + 0.5) / 1000 * (high - low)
    expected = np.histogram(drawn, 5, (0, 1), density=True)[0]
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert found.mean() == pytest.approx(1)


def test_lines_show_coverage_and_reliability(pyplot):
    x, y = NORMAL.plot_coverage().lines[1].get_data()
    coverage = NORMAL.coverage(x.tolist())
    np.testing.assert_array_equal(y, coverage.observed)
    assert (y[3:] < x[3:]).all()  # too narrow
    bins = BINARY.reliability(6, of=1)
    x, y = BINARY.plot_reliability(bins=6, of=1).lines[1].get_data()
    np.testing.assert_array_equal(x, bins.confidence[bins.count > 0])
    np.testing.assert_array_equal(y, bins.accuracy[bins.count > 0])


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("matplotlib.pyplot", NORMAL.plot_pit),
        ("matplotlib.pyplot", lambda: display.plot_accuracy(None, {}, None, None, 0.0)),
        ("matplotlib.pyplot", lambda: display.plot_comparison(None, [], {}, (), {}, {})),
        ("pandas", lambda: display.data_frame([], [], "row")),
        ("arviz", arviz_access.arviz),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, package, use):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r'pip install "pyro-moments\[diagnostics\]"'):
        use()


def test_the_number_of_bins_is_positive():
    with pytest.raises(ValueError, match="positive integer"):
        NORMAL.plot_pit(object(), bins=0)
