"""Simulated data of nested inference are of the models, and what fails on them is told."""

import json
from itertools import starmap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyro
import pytest
from scipy.stats import kstest

import pyro_moments

LIKELIHOODS = "Poisson Bernoulli binomial, negative Gamma Normal".split()


@pytest.fixture
def calibration(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    import nested_calibration

    monkeypatch.setattr(nested_calibration.harness, "in_processes", starmap)
    return nested_calibration


@pytest.mark.parametrize("part", LIKELIHOODS)
def test_simulated_parameters_are_of_the_priors(calibration, part):
    """Scalars of 300 data sets are beside draws of the model, and their observations possible."""
    import host_pyro

    (name,) = [name for name in calibration.LIKELIHOODS if f"{name},".startswith(part)]
    simulation = calibration.LIKELIHOODS[name]
    drawn = {}
    for seed in range(300):
        truth, y = simulation.draw(np.random.default_rng(seed))
        for site, at in truth.items():
            drawn.setdefault(site, []).append(at)
    with host_pyro.doubles():
        data = host_pyro.array(y.astype(float))
        trace = pyro.poutine.trace(simulation.make(host_pyro)).get_trace(data)
    assert np.isfinite(float(trace.log_prob_sum()))
    scalars = [site for site in trace.stochastic_nodes if trace.nodes[site]["value"].dim() == 0]
    assert set(scalars) == set(drawn)
    for site, values in drawn.items():
        draws = [float(trace.nodes[site]["fn"].sample()) for _ in range(2000)]
        assert kstest(values, draws).pvalue > 1e-3


def test_failures_are_told(calibration, monkeypatch, tmp_path):
    """An exception, a warning, a wide error and no number, each by its seed; ranks of the rest."""

    def inferred(model, y):
        count = inferred.count = inferred.count + 1
        if count == 1:
            raise ValueError("no mode\nand more")
        warned = ["two modes"] if count == 2 else []
        marginal = SimpleNamespace(cdf=lambda at: np.nan if count == 3 else 0.9)
        error = 0.75 if count == 4 else 0.01
        return SimpleNamespace(
            warnings=warned,
            log_evidence=-3.0,
            log_evidence_error=error,
            marginal=lambda site: marginal,
        )

    inferred.count = 0
    monkeypatch.setattr(pyro_moments, "nested", inferred, raising=False)
    out = tmp_path / "likelihoods.json"
    given = "--task likelihoods --host pyro --sets 6 --only Poisson --out".split()
    calibration.main([*given, str(out)])
    found = json.loads(out.read_text())["Poisson, walk"]["pyro"]
    assert found["failed"] == {
        "0": ["ValueError: no mode"],
        "1": ["two modes"],
        "2": ["figures that are not finite"],
        "3": ["evidence that may be 0.75 nats off"],
    }
    assert found["ranks"]["step"]["counts"] == [0, 0, 0, 0, 0, 4]


def test_uniformity(calibration):
    even = calibration.uniformity(np.linspace(0.01, 0.99, 60), 6)
    assert even == {"counts": [10] * 6, "p": 1.0}
    assert calibration.uniformity([0.9] * 60, 6)["p"] < 1e-10
