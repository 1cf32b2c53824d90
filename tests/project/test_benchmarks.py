"""The benchmarks run, briefly, and what they report is well formed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.checks import small_programs


@pytest.fixture(autouse=True)
def _scripts_on_path(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")


@pytest.mark.parametrize(("host", "contenders"), [("pyro", [4, 2, 3]), ("numpyro", [3, 3, 2, 3])])
def test_step_time(tmp_path, monkeypatch, host, contenders):
    """In NumPyro beside one reference, since XLA compiles every contender."""
    import step_time

    plan = replace(step_time.PLANS["numpyro"], references=(step_time.SAMPLED,), two_heads=False)
    monkeypatch.setitem(step_time.PLANS, "numpyro", plan)
    out = tmp_path / "time.json"
    few = ["--repeats", "1", "--small-only", "--no-compiled"]
    with small_programs.large_by_numpy():
        step_time.main([*few, "--host", host, "--out", str(out)])
    found = json.loads(out.read_text())
    assert [len(seconds) for seconds in found.values()] == contenders
    assert all(value > 0 for seconds in found.values() for value in seconds.values())


def test_guides_speed(tmp_path):
    """Guides by their defaults, in Pyro, each with its limit."""
    import guides_speed

    out = tmp_path / "time.json"
    few = "--repeats 1 --no-compiled --only TridiagonalGuide"
    guides_speed.main([*few.split(), "--out", str(out)])
    (row,) = json.loads(out.read_text())["rows"]
    assert row["ours"]["name"] == guides_speed.CHAIN
    assert row["limit"] == 2
    assert row["ratio"] > 0


def test_ordinary_models(tmp_path):
    """In Pyro: in NumPyro the script keeps its process, here the worker, to one processor."""
    import ordinary_models

    out = tmp_path / "time.json"
    few = "--repeats 1 --rows 50 --only 50".split()
    ordinary_models.main([*few, "--out", str(out)])
    found = json.loads(out.read_text())
    assert len(found) == 7
    assert all(value > 0 for seconds in found.values() for value in seconds.values())


@pytest.mark.parametrize(("host", "count"), [("pyro", 3), ("numpyro", 3)])
def test_first_steps(tmp_path, host, count):
    """One import, and in Pyro a compiled and an eager step, in NumPyro two of one hidden layer."""
    import first_steps

    out = tmp_path / "first.json"
    first_steps.main(f"--host {host} --repeats 1 --depths 1 --out {out}".split())
    found = json.loads(out.read_text())
    assert len(found["rows"]) == count
    assert found["rows"][0]["ratio"] > 1  # the package imports its host
    assert all(row["ratio"] > 0 for row in found["rows"])
    assert len(found["instructions"]) == (2 if host == "numpyro" else 0)
    assert len(found["load"]) == 2


def test_peak_memory(tmp_path):
    """The covariances are in it, and the network of the benchmark keeps to its limit."""
    import peak_memory

    out = tmp_path / "memory.json"
    peak_memory.main(["--check", "--out", str(out)])
    assert all(2 < tensors <= peak_memory.LIMIT for tensors in json.loads(out.read_text()).values())


def test_dropout_accuracy(tmp_path):
    """Deviations within five per cent; those of the first layer within their standard errors."""
    import dropout_accuracy

    out = tmp_path / "accuracy.json"
    options = "--sizes 64 30 20 10 --masks 4000 --first 20000 --steps 60"
    dropout_accuracy.main([*options.split(), "--out", str(out)])
    rows = json.loads(out.read_text())
    assert [row["layer"] for row in rows] == [1, 2, 3, 1, 2, 3]
    for row in rows:
        assert 0.95 < row["deviation_ratio"] < 1.05, row
        if row["layer"] == 1:
            assert row["rms_standard_errors"] < 1.3, row
            assert row["share_beyond_three"] < 0.02, row
