"""What quantiles and draws of predictions satisfy in both hosts."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments

LEVELS = np.array([0.01, 0.2, 0.5, 0.9, 0.999])


def check_levels(below, *, tolerance=2e-6):
    """Probabilities [levels, ...] below continuous quantiles are the levels."""
    expected = np.broadcast_to(LEVELS.reshape((-1,) + (1,) * (below.ndim - 1)), below.shape)
    np.testing.assert_allclose(below, expected, rtol=0, atol=tolerance)


def check_smallest(counts, cumulative):
    """Counts [levels, elements] are the smallest that reach the levels."""
    exact = np.stack([(cumulative < level - 1e-9).sum(0) for level in LEVELS])
    np.testing.assert_array_equal(counts, exact)


def check_draws(draws, quantiles):
    """Shares of draws [draws, ...] up to quantiles are levels, to five errors."""
    shares = np.stack([(draws <= quantile).mean(0) for quantile in quantiles])
    error = np.sqrt(LEVELS * (1 - LEVELS) / len(draws))
    deviation = (shares.reshape(len(LEVELS), -1) - LEVELS[:, None]) / error[:, None]
    assert abs(deviation).max() < 5
    assert len(np.unique(draws[:, ..., 0])) == len(draws)


def check_frequencies(draws, probabilities):
    """Counts [draws, elements] have [counts, elements], to five errors."""
    for count, expected in enumerate(np.asarray(probabilities)):
        error = np.sqrt(expected * (1 - expected) / len(draws)) + 1e-12
        assert (abs((draws == count).mean(0) - expected) < 5 * error).all(), count


def check_distribution_function(cdf, value, draws):
    """Shares of draws up to a value; zero and one at the ends, NaN at NaN."""
    below = np.asarray(cdf(value))
    assert below.shape == draws.shape[1:]
    error = np.sqrt(below * (1 - below) / len(draws)) + 1e-12
    assert (abs((draws <= np.asarray(value)).mean(0) - below) < 5 * error).all()
    for end, expected in ((-np.inf, 0.0), (np.inf, 1.0), (np.nan, np.nan)):
        np.testing.assert_array_equal(cdf(0 * value + end), np.full(below.shape, expected))


class Refusal(NamedTuple):
    """A program, and what its refusal has to say: cause, latent sites, remedy."""

    run: Callable[[], Any]
    cause: str
    remedy: str
    sites: tuple[str, ...] = ()

    def check(self) -> None:
        """Run the program and read its refusal."""
        with pytest.raises(UnsupportedMoments) as raised:
            self.run()
        message = str(raised.value)
        assert re.search(self.cause, message), message
        assert re.search(self.remedy, message.partition("remedy: ")[2]), message
        assert raised.value.sites == tuple(sorted(self.sites))
