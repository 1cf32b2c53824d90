"""What the matrix runs from the wheel: ``python matrix_program.py pyro|numpyro``.

A regression with known noise has a Gaussian posterior, which linear response finds exactly.
"""

import importlib
import sys
import tempfile
from pathlib import Path

import numpy as np

NAME = sys.argv[1]
FRONT_END = importlib.import_module(f"{NAME}_moments")
LANGUAGE = importlib.import_module(NAME)
NOISE, PRIOR = 0.5, 2.0


def to_array(values):
    if NAME == "pyro":
        return importlib.import_module("torch").tensor(values)
    return values


def regression(x, y=None):
    normal = LANGUAGE.distributions.Normal
    line = LANGUAGE.sample("line", normal(0.0, PRIOR).expand([2]).to_event(1))
    with LANGUAGE.plate("data", len(x)):
        LANGUAGE.sample("y", normal(line[0] + line[1] * x, NOISE), obs=y)


def check_accuracy(x, y, response, data):
    """Covariances and predictions are those of the conjugate posterior."""
    design = np.stack([np.ones_like(x), x], -1)
    covariance = np.linalg.inv(design.T @ design / NOISE**2 + np.eye(2) / PRIOR**2)
    mean = covariance @ design.T @ y / NOISE**2
    np.testing.assert_allclose(response.covariance("line"), covariance, rtol=1e-6)
    predicted = response.predict(data[0])["y"].mean
    np.testing.assert_allclose(predicted, design @ mean, rtol=1e-6)


def check_storage(result, data):
    """What was saved predicts the same when it is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trained.safetensors"
        FRONT_END.save(path, regression, result, *data)
        loaded = FRONT_END.load(path, regression, FRONT_END.DVIGuide(), data[0])
    before, after = (FRONT_END.predict(regression, fit, data[0])["y"] for fit in (result, loaded))
    np.testing.assert_array_equal(np.asarray(after.mean), np.asarray(before.mean))
    np.testing.assert_array_equal(np.asarray(after.variance), np.asarray(before.variance))


def check_scores(response, data):
    """ArviZ takes the draws of the exact posterior, whose weights are equal."""
    draws = FRONT_END.to_inference_data(regression, response, *data, num_samples=500)
    scores = FRONT_END.loo(draws)
    assert scores.pareto_k_joint == 0
    assert np.isfinite(scores.elpd)
    with tempfile.TemporaryDirectory() as folder:
        draws.to_netcdf(str(Path(folder) / "draws.nc"))


def main():
    x = np.linspace(-1.0, 3.0, 40)
    y = 1.5 * x - 0.3 + NOISE * np.random.default_rng(0).normal(size=40)
    data = to_array(x), to_array(y)
    options = {"method": "newton", "float64": True}
    result = FRONT_END.fit(regression, FRONT_END.DVIGuide(), *data, **options)
    response = FRONT_END.linear_response(regression, result, *data)
    check_accuracy(x, y, response, data)
    check_storage(result, data)
    check_scores(response, data)


main()
