"""The examples and the benchmarks run, briefly, and what they report is well formed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pyro_moments import DeterministicELBO

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _scripts_on_path(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.fixture
def data(tmp_path):
    """A folder with one small set of two splits; its last column is constant."""
    random = np.random.default_rng(0)
    inputs = np.column_stack([random.normal(size=(60, 2)), np.full(60, 0.998)])
    target = 100 * inputs[:, 0] + 10 * random.normal(size=60)
    test_mask = np.arange(60) % 10 == np.arange(2)[:, None]
    (tmp_path / "uci").mkdir()
    np.savez(tmp_path / "uci" / "toy.npz", X=inputs, y=target, test_mask=test_mask)
    return tmp_path


@pytest.mark.parametrize("method", ["dvi", "ddvi", "mcvi"])
def test_uci_regression(method, data, tmp_path):
    import uci_regression

    out = tmp_path / "out.json"
    options = f"--set toy --method {method} --steps 30 --batch-size 54 --learning-rate 0.05"
    uci_regression.main(["--data", str(data), "--out", str(out), *options.split()])
    summary = json.loads(out.read_text())
    assert summary["set"] == "toy"
    assert summary["splits"] == [0, 1]
    assert len(summary["test_log_likelihood"]["per_split"]) == 2
    assert -20 < summary["test_log_likelihood"]["mean"] < -3  # a standard deviation of 100
    assert 5 < summary["rmse"]["mean"] < 500


def test_uci_regression_is_reproducible(data, tmp_path):
    import uci_regression

    outs = [tmp_path / "first.json", tmp_path / "second.json"]
    for out in outs:
        uci_regression.main(
            [
                *("--data", str(data / "uci"), "--set", "toy", "--out", str(out)),
                *("--splits", "1", "--first-split", "1", "--steps", "5", "--seed", "3"),
            ]
        )
    assert outs[0].read_text() == outs[1].read_text()
    assert json.loads(outs[0].read_text())["splits"] == [1]


def test_uci_regression_names_the_sets_it_has(data):
    import uci_regression

    with pytest.raises(SystemExit, match=r"no set 'tpy' in .*: it has toy"):
        uci_regression.main(["--data", str(data), "--set", "tpy"])


@pytest.mark.parametrize("script", ["uci_regression", "demo"])
def test_numpyro_is_refused_for_now(script, capsys):
    module = __import__(script)
    required = ["--data", "nowhere", "--set", "toy"] if script == "uci_regression" else []
    with pytest.raises(SystemExit):
        module.main([*required, "--backend", "numpyro"])
    assert "not available yet" in capsys.readouterr().err


def test_constant_columns_keep_their_unit(data):
    import regression

    with np.load(data / "uci" / "toy.npz") as arrays:
        split = regression.standardise(arrays["X"], arrays["y"], arrays["test_mask"][0])
    torch.testing.assert_close(split.x_train[:, 2], torch.zeros(54), atol=1e-6, rtol=0)
    torch.testing.assert_close(split.x_train[:, 0].std(correction=0), torch.tensor(1.0))
    torch.testing.assert_close(split.y_train.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)


def test_mini_batches_cover_an_epoch():
    import regression

    batches = regression.mini_batches(rows=10, batch_size=5)
    assert sorted(torch.cat([next(batches), next(batches)]).tolist()) == list(range(10))
    assert len(next(regression.mini_batches(rows=3, batch_size=64))) == 3


def test_analytic_and_sampled_predictions_agree():
    import regression

    torch.manual_seed(0)
    x, y = torch.randn(20, 2), torch.randn(20)
    model = regression.HeteroscedasticNetwork(2, 5, rows=20)
    guide = regression.make_guide(model)
    losses = regression.train(
        DeterministicELBO(), model, guide, x, y, steps=60, batch_size=20, learning_rate=0.05
    )
    assert len(list(losses)) == 60
    exact, exact_mean = regression.analytic_log_prob(model, guide, x, y)
    sampled, sampled_mean = regression.sampled_log_prob(model, guide, x, y, samples=2000)
    torch.testing.assert_close(exact, sampled, atol=3e-2, rtol=0)
    torch.testing.assert_close(exact_mean, sampled_mean, atol=3e-2, rtol=0)


def test_demo(tmp_path, capsys):
    import demo

    picture = tmp_path / "demo.png"
    demo.main(["--seconds", "0.3", "--out", str(picture)])
    printed = capsys.readouterr().out
    assert printed.count("test log-likelihood") == 2
    assert printed.rstrip().endswith(str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("backend", "tables", "contenders"), [("pyro", 1, 4), ("numpyro", 2, 5)])
def test_step_time(tmp_path, backend, tables, contenders):
    import step_time

    out = tmp_path / "time.json"
    few = ["--repeats", "1", "--small-only", "--no-compiled"]
    step_time.main([*few, "--backend", backend, "--out", str(out)])
    found = json.loads(out.read_text())
    assert len(found) == tables
    for seconds in found.values():
        assert len(seconds) == contenders
        assert all(value > 0 for value in seconds.values())


def test_peak_memory(tmp_path):
    """The covariances are in it, and the network of the benchmark keeps to its limit."""
    import peak_memory

    out = tmp_path / "memory.json"
    peak_memory.main(["--check", "--out", str(out)])
    assert all(2 < tensors <= peak_memory.LIMIT for tensors in json.loads(out.read_text()).values())


def test_elbo_accuracy_of_one_hidden_layer(tmp_path):
    import elbo_accuracy

    out = tmp_path / "accuracy.json"
    options = "--depths 1 --samples 2000 --steps 60 --units 10"
    elbo_accuracy.main([*options.split(), "--out", str(out)])
    for row in json.loads(out.read_text()):
        tolerance = 3 * row["standard_error"] + 0.005 * abs(row["sampled"])
        assert abs(row["elbo"] - row["sampled"]) < tolerance, row
