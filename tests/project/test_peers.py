"""The comparison with other tools: its rules, and one contender."""

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
            module, function = where.partition(":")[0].split(".")
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


@pytest.fixture
def uci(peers):
    import peers_uci

    return peers_uci


def test_contenders_of_the_uci_sets_are_functions_of_these_files(uci):
    for where in uci.CONTENDERS.values():
        module, function = where.partition(":")[0].split(".")
        text = (ROOT / "benchmarks" / f"{module}.py").read_text(encoding="utf-8")
        assert function in [part.name for part in ast.parse(text).body if hasattr(part, "name")]


def _found(uci, ours, rival, seconds=1.0):
    """All contenders on one set: three splits of each."""
    scores = dict.fromkeys(uci.CONTENDERS, rival) | dict.fromkeys(uci.OURS, ours)
    found = {name: {"log_likelihood": s, "seconds": [9.0, 1.0, 1.0]} for name, s in scores.items()}
    for name in uci.OURS:
        found[name]["seconds"] = [9.0, seconds, seconds]
    return {"yacht": found}


def test_the_check_of_the_uci_sets_can_fail(uci):
    below = [0.9, 1.9, 2.9]
    assert uci.failures(_found(uci, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])) == []
    assert uci.failures(_found(uci, [0.5, 2.6, 2.8], [1.0, 2.0, 3.0])) == []  # within the error
    assert len(uci.failures(_found(uci, below, [1.0, 2.0, 3.0]))) == len(uci.OURS) * len(uci.RIVALS)
    assert len(uci.failures(_found(uci, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], seconds=1.6))) == len(
        uci.OURS
    )
    assert len(uci.failures(_found(uci, [9.0], [1.0]))) == len(uci.OURS) * len(
        uci.RIVALS
    )  # no error of one


def test_a_mixture_of_normals(peers):
    data = peers.Split(*(np.zeros(0),) * 3, np.array([0.5]))
    found = peers.of_draws(1.0, data, np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]]))
    expected = [np.exp(-0.125), np.exp(-0.03125) / 2]
    np.testing.assert_allclose(np.exp(found.log_density), np.mean(expected) / np.sqrt(2 * np.pi))


def test_this_library_is_calibrated_on_the_regression(peers):
    data = peers.split(0)
    contender = peers.contender(peers.TASKS["regression"]["this library, Pyro"], "regression")
    found = peers.summary(contender(data), data)
    assert 0.8 < found["inside"] < 0.98
    assert -1.2 < found["log_likelihood"] < -1.0
    assert len(found["deviations"]) == 10
