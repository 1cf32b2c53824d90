"""Threads share fits and predictions, although handlers of the frameworks are global."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tests.fitting.models import fresh, started

THREADS, CALLS = 4, 8  # each of four inputs twice


@pytest.fixture
def switching():
    """Threads that take turns after a tenth of a millisecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def in_threads(call):
    """The results of many calls, by a pool of threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(call, range(CALLS)))


@pytest.mark.usefixtures("switching")
def test_a_pool_of_threads_serves_predictions(host):
    model, guide = host.regression, host.package.DVIGuide()
    params = started(host, model, guide, host.x, host.y)
    inputs = [host.x[:10] * (part + 1) for part in range(THREADS)]

    def variance(call):
        found = host.package.predict(model, guide, *params, inputs[call % THREADS])["obs"]
        return np.asarray(found.variance)

    expected = [variance(call) for call in range(THREADS)]
    np.testing.assert_array_equal(in_threads(variance), 2 * expected)


@pytest.mark.usefixtures("switching")
def test_what_a_prediction_computes_later_is_of_its_own_precision():
    """A prediction in single precision is asked while another thread trains in double."""
    host = fresh("pyro")

    def counts(x, y=None):
        rate = (x @ host.weight()).exp()
        host.observe(x, host.dist.Poisson(rate), y)

    result = host.fit(counts, host.x, host.y.abs().round(), steps=2)
    prediction = host.package.predict(counts, result, host.x[:3])["obs"]

    def either(call):
        if call % 2:
            host.fit(host.regression, host.x, host.y, steps=1, float64=True)
        return prediction.quantile(0.9).dtype

    assert set(in_threads(either)) == {torch.float32}
    assert torch.get_default_dtype() is torch.float32


def test_a_callback_of_a_training_may_call_verbs():
    """It runs in the thread that holds the lock."""
    host, found = fresh("pyro"), []
    moments = host.package.Moments(host.x, variance=host.x**2)

    def callback(progress):
        found.append(host.package.propagate(torch.tanh, moments))

    host.fit(host.regression, host.x, host.y, steps=2, every=1, callback=callback)
    assert len(found) == 2
