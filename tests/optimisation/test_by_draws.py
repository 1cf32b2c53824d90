"""A loss by draws: its bias, its standard error, and when it contradicts the closed form."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from moment_calculus.objectives.by_draws import Evaluations, check_loss, jackknife, pooled_energy
from moment_calculus.optimisation.batches import AllData
from moment_calculus.optimisation.outcome import ByDraws


def test_the_jackknife_takes_the_bias_of_a_logarithm_out():
    """Of E log-normal with variance one: log E e^x = 1/2, which K draws underestimate by O(1/K)."""
    draws = np.random.default_rng(0).normal(size=(300, 8, 1)) * 0.9
    zero, one = np.zeros(8), np.ones(8)
    found = np.array([jackknife(part, zero, one, alpha=1.0) for part in draws])
    plain = -np.log(np.exp(draws).mean(1))
    exact, noise = -(0.9**2) / 2, found[:, 0].std() / 300**0.5
    assert abs(found[:, 0].mean() - exact) < 4 * noise
    assert abs(plain.mean() - exact) > 4 * noise
    assert np.mean(found[:, 1] ** 2) == pytest.approx(found[:, 0].var(), rel=0.3)


def test_looks_are_pooled_before_the_bias_is_taken_out():
    """The mean of the looks keeps the bias of each, which no number of looks makes less."""
    draws = np.random.default_rng(1).normal(size=(100, 32, 4, 1)) * 1.5
    zero, one = np.zeros(4), np.ones(4)
    found = [pooled_energy([(look, zero, one) for look in part], alpha=1.0)[0] for part in draws]
    apart = [np.mean([jackknife(look, zero, one, alpha=1.0)[0] for look in part]) for part in draws]
    exact, noise = -(1.5**2) / 2, np.std(found) / 100**0.5
    assert abs(np.mean(found) - exact) < 4 * noise
    assert abs(np.mean(apart) - exact) > 4 * noise


@pytest.mark.parametrize(("bias", "share_off"), [(0.0, 0.0), (0.025, 1.0)])
def test_particles_are_added_until_they_tell_one_per_cent(bias, share_off):
    """By 32 of them three standard errors are 3 % here."""
    fit = SimpleNamespace(seconds={"fitting": 100.0}, loss=100.0)
    objective = SimpleNamespace(alpha=0.0, propagation=SimpleNamespace(covariance="full"))
    objective.propagation.categorical = "points"
    rng, found = np.random.default_rng(0), []

    def particles(data, count, turn):
        latent = -100 * (1 + bias) + 5.6 * rng.normal(size=count)
        return np.zeros((count, 1)), latent, np.ones(count)

    for _ in range(20):
        evaluations = Evaluations(particles, lambda data, turn: fit.loss, True)
        found.append(check_loss(fit, objective, AllData((), {}), evaluations))
    assert np.mean([each.is_off for each in found]) == share_off
    assert all(each.is_precise for each in found)


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
