"""Pairs of mixtures of steps and gates against quadrature of the plain functions."""

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu

from moment_calculus.functions.pairs.mixtures import GATE, StepMixture
from moment_calculus.numerics import normal
from tests.cases.kinds import on_numpy
from tests.oracles import quadrature as oracles

FUNCTIONS = {"gelu": (GATE, gelu), "ndtr": (StepMixture((1.0,), (1.0,)), torch.special.ndtr)}
RATIOS = [(0.5, -0.7), (1.0, 1.2), (-5.0, -6.0), (-8.0, -8.0), (8.0, -8.0), (-0.7, -0.8)]
SCALES = [(1e-3, 1e-3), (0.1, 1.0), (1.0, 2.0), (3.0, 20.0), (100.0, 100.0)]
RHOS = [0.3, -0.6, 0.99, -0.9999, 0.999999]


def pairs_of(name, ratios=RATIOS, scales=SCALES, rhos=RHOS):
    """Means [n, 2], covariances [n, 2, 2], and what quadrature gives."""
    plain = on_numpy(FUNCTIONS[name][1])
    means, covariances, true = [], [], []
    for scale in scales:
        for ratio in ratios:
            mean = np.array(scale) * ratio
            for rho in rhos:
                means.append(mean)
                covariances.append(np.outer(scale, scale) * [[1, rho], [rho, 1]])
                true.append(oracles.activation_covariance(plain, mean, scale, rho, (0.0,)))
    return np.array(means), np.array(covariances), np.array(true)


def matrices(mixture, mean, covariance):
    xp = torch if isinstance(mean, torch.Tensor) else np
    variance = (
        xp.diagonal(covariance, 0, -2, -1) if xp is torch else np.diagonal(covariance, 0, 1, 2)
    )
    return mixture.all_pairs(mean, variance, covariance)


@pytest.fixture(scope="module")
def gelu_pairs():
    return pairs_of("gelu")


def test_gelu_is_exact(gelu_pairs):
    mean, covariance, true = gelu_pairs
    result = matrices(GATE, mean, covariance)
    np.testing.assert_allclose(result[:, 0, 1], true, rtol=1e-7)
    np.testing.assert_array_equal(result[:, 0, 1], result[:, 1, 0])


def test_gelu_in_single_precision(gelu_pairs):
    mean, covariance, true = gelu_pairs
    plain = on_numpy(gelu)
    variance = [
        [
            oracles.activation_moments(plain, mean[i, k], covariance[i, k, k] ** 0.5, (0.0,))
            for k in (0, 1)
        ]
        for i in range(0, len(true), len(RHOS))
    ]
    size = np.repeat(
        [(one["variance"] * two["variance"]) ** 0.5 for one, two in variance], len(RHOS)
    )
    single = matrices(GATE, mean.astype(np.float32), covariance.astype(np.float32))[:, 0, 1]
    # the rounding of ρ to single precision alone moves it by 1e-7/√(1 − ρ²)
    assert np.max(np.abs(single - true) / size) < 1e-4


def test_steps_are_exact():
    mean, covariance, true = pairs_of("ndtr", RATIOS[:2], [(0.5, 1.0), (3.0, 20.0)], [-0.9, 0.999])
    result = matrices(FUNCTIONS["ndtr"][0], mean, covariance)
    np.testing.assert_allclose(result[:, 0, 1], true, rtol=1e-7)


def test_mixed_covariance_is_the_slope_of_the_rectifiers():
    generator = np.random.default_rng(4)
    a, b = generator.uniform(-5, 5, (2, 300))
    rho = np.concatenate([generator.uniform(-1, 1, 290), [1, -1, 0.999999, -0.999999, 0] * 2])
    step = 1e-5
    slope = normal.rectifier_covariance(a, b + step, rho) - normal.rectifier_covariance(
        a, b - step, rho
    )
    np.testing.assert_allclose(
        normal.mixed_covariance(a, b, rho), slope / (2 * step), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        normal.mixed_covariance(a, b, np.ones(300)),
        np.where(a < b, normal.pdf(a) + a * normal.cdf(a), normal.pdf(b) + a * normal.cdf(b))
        - (normal.pdf(a) + a * normal.cdf(a)) * normal.cdf(b),
        atol=1e-7,
    )
