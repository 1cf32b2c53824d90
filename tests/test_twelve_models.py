"""Twelve models of different kinds: the deterministic ELBO is the expectation of Trace_ELBO."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.marks import slow

NAMES = [
    "regression",
    "heteroscedastic",
    "robust",
    "logistic",
    "ordinal",
    "softmax",
    "Poisson",
    "hierarchical",
    "residual",
    "layer norm",
    "two heads",
    "local latents",
]
STEPS = {"pyro": 60, "numpyro": 100}


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
    import model_accuracy

    return model_accuracy


# Losses of the other models are compared between the hosts.
ROWS = [("pyro", name) for name in NAMES]
SLOW = [("pyro", "residual"), ("pyro", "layer norm")]
SLOW += [("numpyro", name) for name in ("layer norm", "two heads", "local latents")]


@pytest.mark.parametrize(
    ("backend", "name"), [*(row for row in ROWS if row not in SLOW), *(slow(*row) for row in SLOW)]
)
def test_elbo_agrees_with_samples(benchmark, backend, name):
    host = benchmark.backend(backend)
    model, data = host.twelve_models()[name]
    row = benchmark.compare(host, name, model, data, samples=600, steps=STEPS[backend])
    assert row.agrees, row
    assert row.standard_error < 0.02 * abs(row.sampled), "too few samples to tell"


@pytest.mark.parametrize("backend", STEPS)
def test_names_are_complete(benchmark, backend):
    assert sorted(benchmark.backend(backend).twelve_models()) == sorted(NAMES)
