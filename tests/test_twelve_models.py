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


# Losses of the other models are compared between the frameworks; the likelihoods of the slow ones
# stand in fitting/test_losses_at_the_optimum.py, too.
ROWS = [("pyro", name) for name in NAMES]
SLOW = [("pyro", name) for name in ("residual", "layer norm", "robust", "softmax", "two heads")]
SLOW += [("pyro", "Poisson"), ("pyro", "logistic")]
SLOW += [("numpyro", name) for name in ("layer norm", "two heads", "local latents")]


@pytest.mark.parametrize(
    ("host", "name"), [*(row for row in ROWS if row not in SLOW), *(slow(*row) for row in SLOW)]
)
def test_elbo_agrees_with_samples(benchmark, host, name):
    model, data = benchmark.models(host)[name]
    module = benchmark.hosts.load(host)
    row = benchmark.compare(module, name, model, data, samples=300, steps=STEPS[host])
    assert row.agrees, row
    assert row.standard_error < 0.02 * abs(row.sampled), "too few samples to tell"


@pytest.mark.parametrize("host", STEPS)
def test_names_are_complete(benchmark, host):
    assert sorted(benchmark.models(host)) == sorted(NAMES)
