"""The comparison with other tools: its rules, and the contender that is installed here."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pyro
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import peers

    with pyro.settings.context(module_local_params=True):
        yield peers


def test_contenders_are_functions_of_these_files(peers):
    for contenders in peers.TASKS.values():
        for where in contenders.values():
            module, function = where.split(".")
            text = (ROOT / "benchmarks" / f"{module}.py").read_text(encoding="utf-8")
            names = [part.name for part in ast.parse(text).body if hasattr(part, "name")]
            assert function in names


def test_parts_are_all_rows_once(peers):
    sizes = [len(peers.split(part).y_test) for part in range(peers.PARTS)]
    data = peers.split(0)
    assert sum(sizes) == len(data.y) + len(data.y_test) == 442
    np.testing.assert_allclose(data.x.std(0), 1.0)


def test_a_mixture_of_one_is_a_normal(peers):
    data = peers.Split(*(np.zeros(0),) * 3, np.array([0.0, 3.0]))
    found = peers.of_draws(1.0, data, np.zeros((4000, 2)), np.full((4000, 1), 2.0))
    expected = -0.5 * data.y_test**2 / 4 - np.log(2 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(found.log_density, expected)
    np.testing.assert_allclose(found.interval[1], 2 * 1.645, rtol=0.02)
    assert peers.summary(found, data)["inside"] == 1.0


def test_training_ends_where_the_loss_is_flat(peers):
    losses = iter([*np.linspace(100.0, 50.0, 3 * peers.BLOCK), *[50.0] * (9 * peers.BLOCK)])
    peers.until_flat(lambda: next(losses))
    assert len(list(losses)) == 7 * peers.BLOCK


@pytest.mark.slow
def test_this_library_is_calibrated_on_the_regression(peers):
    import peers_pyro

    data = peers.split(0)
    found = peers.summary(peers_pyro.ours("regression", data), data)
    assert 0.8 < found["inside"] < 0.98
    assert -1.2 < found["log_likelihood"] < -1.0
    assert len(found["deviations"]) == 10
