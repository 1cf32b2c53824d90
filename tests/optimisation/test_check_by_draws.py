"""The check of a loss by draws: looks, tails, and the three answers."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from moment_calculus.numerics.pareto import tail_of_mean
from moment_inference.objectives.by_draws import (
    Evaluations,
    Look,
    check_loss,
    jackknife,
    pooled_energy,
)
from moment_inference.objectives.data_plates import log_mean_power
from moment_inference.optimisation.batches import AllData
from moment_inference.optimisation.outcome import ByDraws

FULL = SimpleNamespace(covariance="full", categorical="points")
OBJECTIVE = SimpleNamespace(alpha=0.0, propagation=SimpleNamespace(of_guide=lambda guide: FULL))


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
    """The mean of the looks keeps the bias of each."""
    draws = np.random.default_rng(1).normal(size=(100, 16, 16, 1)) * 2.0
    zero, one = np.zeros(16), np.ones(16)
    looks = [[Look((look, zero, one), 1.0) for look in part] for part in draws]
    found = [pooled_energy(part, alpha=1.0)[0] for part in looks]
    apart = [np.mean([jackknife(look, zero, one, alpha=1.0)[0] for look in part]) for part in draws]
    exact, noise = -(2.0**2) / 2, np.std(found) / 100**0.5
    assert abs(np.mean(found) - exact) < 4 * noise
    assert abs(np.mean(apart) - exact) > 4 * noise


def test_looks_of_different_sizes_weigh_as_many_as_they_are():
    """Two looks of 16 and 64 draws are one of 80 without groups, but for the bias that is left."""
    draws = np.random.default_rng(1).normal(size=(80, 3))
    zero, one = np.zeros(80), np.ones(80)
    parts = (slice(0, 16), slice(16, 80))
    looks = [Look((draws[part], zero[part], one[part]), 0.5) for part in parts]
    groups = np.concatenate([draws[:16, None], draws[16:].reshape(4, 16, 3).swapaxes(0, 1)], 1)
    whole = log_mean_power(groups.swapaxes(0, 1), 0.5)
    expected = jackknife(whole, zero[:16], one[:16], alpha=0.5)
    assert pooled_energy(looks, alpha=0.5) == pytest.approx(expected, rel=1e-12)


def check(draw_losses, loss):
    """Return the check of a loss whose draws are given, 100 nats of likelihood."""
    fit = SimpleNamespace(guide=None, seconds={"fitting": 1.0}, loss=loss, params={})

    def particles(data, count, turn):
        return -draw_losses(count)[:, None], np.zeros(count), np.ones(count)

    evaluations = Evaluations(particles, lambda data, turn: fit.loss, True)
    return check_loss(fit, OBJECTIVE, AllData((), {}), evaluations, 0.05)


@pytest.mark.parametrize(
    ("bias", "answers"),
    [
        (0.0, ["agrees"]),
        (0.5, ["agrees"]),
        (1.5, ["cannot tell", "contradicts"]),
        (2.9, ["contradicts"]),
    ],
)
def test_particles_are_added_until_they_tell_one_or_two_per_cent(bias, answers):
    """By 16 of them two standard errors are 5 % here."""
    rng = np.random.default_rng(0)
    found = [check(lambda n: 100 + bias + 10 * rng.normal(size=n), 100.0) for _ in range(20)]
    assert np.mean([each.answer in answers for each in found]) >= 0.9
    assert min(each.tolerance for each in found) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("shape", "loss", "answer"),
    [(1.6, 5.0, "contradicts"), (0.4, 1 / 0.6, "agrees"), (0.85, 1 / 0.15, "cannot tell")],
)
def test_a_heavy_tail_is_not_confirmed(shape, loss, answer):
    """Pareto losses: without a mean, with one, with one that hides."""
    rng = np.random.default_rng(0)
    found = [check(lambda n: (1 - rng.random(n)) ** -shape, loss) for _ in range(20)]
    answers = [each.answer for each in found]
    assert answers.count(answer) >= 15
    assert answer == "agrees" or "agrees" not in answers
    if answer == "contradicts":
        assert "no mean" in str(found[0])


@pytest.mark.parametrize("shape", [0.3, 0.6])
def test_the_tail_adds_what_is_beyond_the_largest_draw(shape):
    """∫ S(x) dx from the quantile of 1/n on, of a Pareto distribution of scale one."""
    rng, count = np.random.default_rng(0), 4000
    found = np.array([tail_of_mean((1 - rng.random(count)) ** -shape) for _ in range(200)])
    exact = count**shape / count / (1 - shape) * shape
    assert np.median(found[:, 0]) == pytest.approx(shape, abs=0.05)
    assert np.median(found[:, 1]) == pytest.approx(found[:, 0].std(), rel=0.3)
    assert 1 < np.median(found[:, 2]) / exact < 3


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        (ByDraws(), "not run"),
        (ByDraws(900.0, math.inf, 400.0, "", 1.3, -400.0), "contradicts"),
        (ByDraws(900.0, math.inf, 400.0, "", 1.1, -400.0), "cannot tell"),
        (ByDraws(900.0, 200.0, 400.0, "", 0.9, -400.0), "cannot tell"),
        (ByDraws(300.0, math.inf, 400.0, "", 1.3, -400.0), "cannot tell"),
        (ByDraws(102.5, 0.4, 100.0, "", 0.0, -100.0), "contradicts"),
        (ByDraws(102.5, 1.0, 100.0, "", 0.0, -100.0), "cannot tell"),
        (ByDraws(100.6, 0.15, 100.0, "", 0.0, -100.0), "agrees"),
        (ByDraws(100.0, 0.1, 100.0, "", 0.5, -100.0, 0.05), "agrees"),
        (ByDraws(100.0, 0.1, 100.0, "", 0.5, -100.0, 0.15), "cannot tell"),
        (ByDraws(100.6, 0.25, 100.0, "", 0.0, -100.0), "cannot tell"),
        (ByDraws(101.5, 0.01, 100.0, "", 0.0, -100.0), "cannot tell"),
        (ByDraws(-100.15, 0.04, -100.0, "", 0.0, 3.0), "agrees"),
        (ByDraws(-100.6, 0.04, -100.0, "", 0.0, 3.0), "contradicts"),
        (ByDraws(math.inf, math.nan, 100.0, ""), "contradicts"),
        (ByDraws(math.nan, math.nan, 100.0, ""), "contradicts"),
    ],
)
def test_nats_of_the_log_likelihood_and_standard_errors(found, answer):
    assert found.answer == answer
    assert answer in str(found)


@pytest.mark.parametrize(
    ("shape", "most"), [((2, 3), 512), ((2**10, 2**9), 32), ((2**11, 2**11), 4)]
)
def test_particles_of_large_guides_are_drawn_in_parts(shape, most):
    """No more parameters at once than memory has room for, in nested dictionaries too."""
    counts, rng = [], np.random.default_rng(0)
    parameters = {"loc": {"weight": SimpleNamespace(shape=shape)}}
    fit = SimpleNamespace(guide=None, seconds={"fitting": 1.0}, loss=100.0, params=parameters)

    def particles(data, count, turn):
        counts.append(count)
        return -100 - 10 * rng.normal(size=(count, 1)), np.zeros(count), np.ones(count)

    evaluations = Evaluations(particles, lambda data, turn: fit.loss, True, compiles=True)
    found = check_loss(fit, OBJECTIVE, AllData((), {}), evaluations, 0.05)
    assert set(counts) == {most}
    assert found.answer != "contradicts"
