"""Pictures of calibration show the numbers, on axes of one's own or new ones."""

from __future__ import annotations

import sys

import matplotlib
import numpy as np
import pytest
import scipy.stats

from moment_calculus.criticism import arviz_access, pictures, tables
from pyro_moments import calibration
from tests.criticism.predicted import LOC, SCALE, SIZE, predicted

Y = np.random.default_rng(0).normal(LOC, 1.4 * SCALE)
ONES = (np.random.default_rng(2).uniform(size=SIZE) < scipy.special.expit(LOC)).astype(int)
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
        ("matplotlib.pyplot", lambda: pictures.plot_accuracy(None, {}, None, None, 0.0)),
        ("matplotlib.pyplot", lambda: pictures.plot_comparison(None, [], {}, (), {}, {})),
        ("pandas", lambda: tables.data_frame([], [], "row")),
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
