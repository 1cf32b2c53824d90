"""The error measures and their standard errors, of layers that are made up."""

import math

import numpy as np
import pytest

from moment_calculus.functions.table import activation
from moment_inference.criticism.accuracy import measures
from moment_inference.criticism.accuracy.accuracy import accuracy_of
from moment_inference.criticism.accuracy.layers import Layer

MEAN, VARIANCE = np.array([[1.0, -2.0], [0.0, 5.0]]), np.array([[1.0, 4.0], [0.25, 9.0]])
COUNT = 1000
random = np.random.default_rng(2)


def layer(mean=MEAN, variance=VARIANCE, covariance=None, reason="", **names):
    names = {"operation": "made up", "line": "/folder/model.py:3", "site": "", **names}
    arrays = mean, variance, covariance, None
    return Layer(**names, index=0, shape=mean.shape, axis=-1, reason=reason, arrays=arrays)


def normal(mean=MEAN, scale=1.0, together=False):
    """Draws of the layer; of one number for all elements if these are drawn together."""

    def draw(count, places):
        noise = random.normal(size=(count, 1, 1) if together else (count, *mean.shape))
        points = mean + scale * np.sqrt(VARIANCE) * noise
        return [points for _ in places]

    return draw


def result_of(layers, draw, count=COUNT, left_out=()):
    return accuracy_of(layers, left_out, 0, draw, count)


def compared(draw, count=COUNT, **options):
    (row,) = result_of([layer(**options)], draw, count)
    return row


def test_exact_moments_have_the_error_of_the_draws():
    row = compared(normal())
    measures = row.measures
    assert row.is_accurate
    assert measures.noise == math.sqrt(2 / (math.pi * COUNT))
    assert abs(measures.mean_error.value - measures.noise) < 4 * measures.mean_error.standard_error
    np.testing.assert_allclose(row.standard_errors[0], np.sqrt(VARIANCE / COUNT), rtol=0.15)
    np.testing.assert_allclose(row.standard_errors[1], np.sqrt(VARIANCE / COUNT / 2), rtol=0.6)


def test_biases_are_measured_in_units_of_the_sampled_deviations():
    shifted = MEAN + 0.5 * np.sqrt(VARIANCE)
    row = compared(normal(scale=2.0), mean=shifted, reason="made up so")
    measures = row.measures
    assert abs(measures.mean_error.value - 0.25) < 5 * measures.mean_error.standard_error
    assert measures.deviation_ratio.value == pytest.approx(0.5, abs=0.03)
    assert measures.departure == pytest.approx(math.log(2), abs=0.06)
    assert measures.worst_mean.value == pytest.approx(0.25, abs=0.15)
    assert not row.is_accurate
    result = result_of([layer(mean=shifted, reason="made up so")], normal(scale=2.0))
    assert result.sentence.startswith("breaks at row 1 (made up, model.py:3): standard deviation")
    assert result.sentence.endswith("(made up so)")


@pytest.mark.parametrize("together", [False, True])
def test_standard_errors_are_those_of_repetitions(together):
    """Elements that are drawn together have larger ones."""
    found = [compared(normal(together=together), count=200).measures for _ in range(200)]
    ratios = np.array([measures.deviation_ratio for measures in found])
    scores = np.log(ratios[:, 0]) / (ratios[:, 1] / ratios[:, 0])
    assert abs(scores.mean()) < 4 * scores.std() / math.sqrt(len(scores))
    assert 0.85 < scores.std() < 1.25
    assert np.mean([measures.is_beyond_noise for measures in found]) <= 0.02
    expected = np.sqrt(1 / 400) if together else np.sqrt(1 / 1600)
    assert ratios[:, 1].mean() == pytest.approx(expected, rel=0.1)


def test_sums_over_blocks_are_those_of_all_draws(monkeypatch):
    """Blocks of few draws far from zero, where plain squares lose digits."""
    monkeypatch.setattr(measures, "BLOCK", 7 * MEAN.size)
    far = MEAN + 1e7
    kept, draw = [], normal(far)

    def keeping(count, places):
        kept.append(draw(count, places)[0])
        assert len(kept[-1]) <= 7
        return [kept[-1]]

    covariance = VARIANCE[:, :, None] * np.eye(2)
    row = compared(keeping, 123, mean=far, covariance=covariance)
    points = np.concatenate(kept)
    assert len(points) == 123
    np.testing.assert_allclose(row.sampled_mean, points.mean(0), rtol=1e-12)
    np.testing.assert_allclose(row.sampled_standard_deviation, points.std(0, ddof=1), rtol=1e-6)
    expected = [np.cov(points[:, batch].T) for batch in range(2)]
    np.testing.assert_allclose(row.sampled_covariance, expected, rtol=1e-6, atol=1e-6)
    assert 0 < row.measures.correlation_error < 4 / math.sqrt(123)


def test_draws_that_only_rounding_moves_are_constant():
    near = (1e4 + 1e-4 * random.normal(size=(COUNT, 2, 2))).astype(np.float32)
    row = compared(lambda count, places: [near[:count]], mean=MEAN * 0 + 1e4)
    assert (row.sampled_standard_deviation == 0).all()
    assert np.isfinite([*row.measures.mean_error, *row.measures.deviation_ratio]).all()


def test_units_that_hardly_fire_do_not_count():
    """Rectifiers, from mostly on to on once in thirty thousand draws."""
    places = np.linspace(-4, 1, 400).reshape(20, 20)
    mean, variance = activation("relu").moments(places, np.ones_like(places))

    def draw(count, _):
        return [np.maximum(places + random.normal(size=(count, 20, 1)), 0.0)]

    known = layer(mean=mean, variance=variance)
    found = [result_of([known], draw).rows[0].measures for _ in range(40)]
    ratios = np.array([measures.deviation_ratio for measures in found])
    scores = np.log(ratios[:, 0]) / (ratios[:, 1] / ratios[:, 0])
    assert abs(scores.mean()) < 4 * scores.std() / math.sqrt(len(scores))
    assert 0.7 < scores.std() < 1.3
    assert not any(measures.is_beyond_noise for measures in found)
    assert all(0.3 < measures.share < 0.7 for measures in found)


def test_infinite_moments_and_draws_are_named():
    infinite = layer(mean=np.full((2, 2), np.inf), site="rate")
    result = result_of([layer(), infinite], normal(), left_out=["other"])
    assert len(result) == 1
    assert result.left_out == ("other", "rate at /folder/model.py:3: infinite moments")

    def draw(count, places):
        return [normal()(count, [0])[0], np.full((count, 2, 2), np.inf)]

    overflow = result_of([layer(), layer(site="rate")], draw, 40)
    assert overflow.left_out == ("rate at /folder/model.py:3: infinite draws",)
    with pytest.raises(ValueError, match="nothing to compare"):
        result_of([infinite], normal())


def test_table_and_figure():
    pandas, matplotlib = pytest.importorskip("pandas"), pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    layers = [layer(), layer(site="obs.loc", variance=4 * VARIANCE, reason="made up so")]
    result = result_of(layers, lambda n, places: 2 * normal()(n, [0]))
    frame = result.table()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.index) == [1, 2]
    assert list(frame.accurate) == [True, False]
    assert frame.label[2] == "obs.loc"
    assert frame.deviation_ratio[2] == pytest.approx(2, rel=0.1)
    text = str(result).splitlines()
    assert len(text) == 5
    assert text[2].endswith("*")
    assert "model.py:3" in text[1]
    axes = result.plot()
    labels = [label.get_text() for label in axes[0].get_yticklabels()]
    assert labels == ["made up  model.py:3", "obs.loc  model.py:3"]
    again = result.plot(axes)
    assert again is axes
    np.testing.assert_allclose(axes[1].lines[0].get_xdata(), frame.deviation_ratio)
    matplotlib.pyplot.close("all")
