"""The benchmarks of networks run, briefly, and the page about them is up to date."""

import argparse
import json
from pathlib import Path

import numpy as np
import pyro
import pytest

from tests.checks import small_programs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _scripts_on_path(monkeypatch):
    for folder in ("benchmarks", "docs"):
        monkeypatch.syspath_prepend(ROOT / folder)
    by_numpy = small_programs.large_by_numpy()  # what they measure is what compiled programs take
    with by_numpy, pyro.settings.context(module_local_params=True):  # which they set for good
        yield


@pytest.fixture
def split(tmp_path):
    """A line with noise, in a file as the sets of data have them."""
    from time_to_accuracy import Split

    generator = np.random.default_rng(0)
    x, test = generator.normal(size=[80, 2]), np.arange(80) % 4 == 0
    y = 3.0 + 2.0 * x[:, 0] + 0.1 * generator.normal(size=80)
    np.savez(tmp_path / "line.npz", X=x, y=y, test_mask=test[None])
    return Split.read(tmp_path / "line.npz", 0)


def test_updates(tmp_path):
    import net_speed

    out = tmp_path / "speed.json"
    net_speed.main(["--repeats", "1", "--only", "updates", "--no-compiled", "--out", str(out)])
    found = json.loads(out.read_text())
    assert [row["ours"]["name"] for row in found["rows"]] == 2 * ["full", "diagonal"]
    assert all(row["ratio"] > 0 for row in found["rows"])
    assert set(found["machine"]) > {"processor", "cores", "torch"}


@pytest.mark.parametrize(("host", "count"), [("pyro", 8), ("numpyro", 2)])
def test_a_step_of_the_activations(host, count):
    import harness
    import net_speed

    module = harness.load(host)
    for name in net_speed.ACTIVATIONS[:count]:
        step = net_speed.layer_step(module, (13, 4, 2), 5, name)
        step()
        assert (module.peak(step) is None) == (host == "numpyro")


def test_growth_and_limits():
    from harness import Growth, Measured, Row, exceeded

    def measured(seconds):
        return Measured("", seconds, 2 * seconds)

    rows = [
        Row("", measured(3.0), "minimum", measured(2.0), limit=1.4),
        Row("", measured(3.0), "median", measured(2.0), limit=1.6),
        Row("", measured(3.0), "median", measured(1.0), limit=5.0, in_seconds=True),
        Row("", measured(3.0), "minimum"),
    ]
    growths = [
        Growth("", "", "", "", (1, 10, 100), (2.0, 200.0, 20_000.0), limit) for limit in (1.9, 2.1)
    ]
    assert [row.judged for row in rows] == [1.5, 1.5, 6.0, None]
    assert growths[0].judged == pytest.approx(2)
    assert len(exceeded([*rows, *growths])) == 3


def test_batches_are_all_rows_in_every_epoch(split):
    batches = np.concatenate(list(next(split.batches(2))[:1]))
    assert len(split.x) == 60
    assert np.unique(batches).size == batches.size == 32
    assert split.x.mean(0) == pytest.approx(0, abs=1e-6)


def test_log_likelihood_of_a_known_posterior(split):
    """No weights, a certain noise of one unit: a Normal about the training mean."""
    start = split.start()
    zeros = {name: (np.zeros_like(loc), np.zeros_like(loc)) for name, loc in start.items()}
    expected = -0.5 * np.log(2 * np.pi) - 0.5 * np.square(split.y_test).mean() - np.log(split.unit)
    assert split.log_likelihood(zeros) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("host", "prior"), [("pyro", "N(0, 1)"), ("numpyro", "empirical Bayes")])
def test_both_reach_a_target(split, host, prior):
    import harness
    import time_to_accuracy

    steps = harness.load(host)
    options = argparse.Namespace(target=-2.0, most=1000, start=0.01, prior=prior)
    contenders = [time_to_accuracy.REFERENCE, *time_to_accuracy.CONTENDERS[host][:2]]
    found = {
        name: time_to_accuracy.summary(
            [[time_to_accuracy.training(steps, options, name, split, 0.01)]]
        )
        for name in contenders
    }
    assert all(result["reached"] for result in found.values())
    reference = found[time_to_accuracy.REFERENCE]
    assert time_to_accuracy.ratios(reference, reference)["ratio"] == 1


def test_what_is_not_reached_has_no_ratio():
    from time_to_accuracy import Training, ratios, summary

    runs = [Training(0.1, reached, 100, 1.0, 5.0, -3.0) for reached in (True, False)]
    missed, met = summary([[run] for run in runs]), summary([[runs[0]], [runs[0]]])
    assert (missed["reached"], met["reached"]) == (False, True)
    assert (met["seconds"], met["with_compiling"]) == (1.0, 6.0)
    assert set(ratios(missed, met).values()) == {None}
    assert set(ratios(met, missed).values()) == {1.0}


def test_the_page_is_what_the_results_say():
    import how_fast

    assert how_fast.PAGE.read_text(encoding="utf-8") == how_fast.page(), (
        "run python docs/how_fast.py"
    )
