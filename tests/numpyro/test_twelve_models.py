"""Twelve models in NumPyro: the deterministic ELBO is the expectation of Trace_ELBO."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pyro.test_twelve_models import NAMES


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    import model_accuracy

    return model_accuracy


@pytest.mark.parametrize("name", NAMES)
def test_elbo_agrees_with_samples(benchmark, name):
    host = benchmark.backend("numpyro")
    model, data = host.twelve_models()[name]
    row = benchmark.compare(host, name, model, data, samples=600, steps=100)
    assert row.agrees, row
    assert row.standard_error < 0.02 * abs(row.sampled), "too few samples to tell"


def test_names_are_complete(benchmark):
    assert sorted(benchmark.backend("numpyro").twelve_models()) == sorted(NAMES)
