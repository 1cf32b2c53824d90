"""A loss by draws: its bias, its standard error, and when it contradicts the closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from moment_calculus.objectives.by_draws import jackknife
from moment_calculus.optimisation.outcome import ByDraws


def test_the_jackknife_takes_the_bias_of_a_logarithm_out():
    """Of E log-normal with variance one: log E e^x = 1/2, which K draws underestimate by O(1/K)."""
    draws = np.random.default_rng(0).normal(size=(1000, 16, 1)) * 0.9
    zero, one = np.zeros(16), np.ones(16)
    found = np.array([jackknife(part, zero, one, alpha=1.0) for part in draws])
    plain = -np.log(np.exp(draws).mean(1))
    exact, noise = -(0.9**2) / 2, found[:, 0].std() / 1000**0.5
    assert abs(found[:, 0].mean() - exact) < 4 * noise
    assert abs(plain.mean() - exact) > 4 * noise
    assert np.mean(found[:, 1] ** 2) == pytest.approx(found[:, 0].var(), rel=0.3)


@pytest.mark.parametrize(
    ("found", "is_off"),
    [
        (ByDraws(), False),
        (ByDraws(101.5, 0.4, 100.0, ""), True),
        (ByDraws(101.5, 0.6, 100.0, ""), False),
        (ByDraws(100.9, 0.1, 100.0, ""), False),
        (ByDraws(-101.5, 0.4, -100.0, ""), True),
        (ByDraws(math.inf, math.nan, 100.0, ""), True),
        (ByDraws(math.nan, math.nan, 100.0, ""), True),
    ],
)
def test_three_standard_errors_and_one_per_cent(found, is_off):
    assert found.is_off == is_off
