"""Probabilities of classes against logits' draws, as documented."""

import numpy as np
import pytest
import torch

from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.normalised.softmax import softmax_moments, softmax_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Gaussian, Spread

SAMPLES = 40_000


def sampled(mean, covariance, generator):
    logits = generator.multivariate_normal(mean, covariance, SAMPLES)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)
    return probabilities.mean(0), probabilities.var(0)


@pytest.mark.parametrize(
    ("classes", "largest", "mean_error", "variance_error"),
    [(2, 16.0, 0.006, 0.006), (3, 1.0, 0.015, 0.01), (5, 4.0, 0.035, 0.02), (10, 16.0, 0.1, 0.06)],
)
def test_errors_are_those_documented(classes, largest, mean_error, variance_error):
    generator = np.random.default_rng(1)
    noise = 3 * 0.5 / SAMPLES**0.5
    for _ in range(10):
        mean, root = generator.normal(0, 2, classes), generator.normal(size=(classes, classes))
        covariance = root @ root.T
        covariance *= largest * generator.uniform(0.2, 1) / np.diag(covariance).max()
        logits = Gaussian(mean, Spread(np.diag(covariance).copy(), covariance))
        ours, theirs = softmax_moments(logits), sampled(mean, covariance, generator)
        assert ours[0].sum() == pytest.approx(1)
        assert np.abs(ours[0] - theirs[0]).max() < mean_error + noise
        assert np.abs(ours[1] - theirs[1]).max() < variance_error + noise


def test_large_correlated_logits_stay_finite_in_single_precision():
    """Rounding makes the curvature of their logsumexp negative."""
    generator = np.random.default_rng(0)
    noise = generator.normal(size=(50, 5, 5))
    covariance = torch.tensor(6e7 + 1e-2 * noise @ noise.mT, dtype=torch.float32)
    mean = torch.tensor(generator.normal(0, 3, (50, 5)), dtype=torch.float32)
    logits = Gaussian(mean, Spread(covariance.diagonal(dim1=-2, dim2=-1), covariance))
    for part in softmax_moments(logits):
        assert torch.isfinite(part).all()


@pytest.mark.parametrize("flow", ["full", "diagonal"])
def test_sums_of_sums_of_probabilities_are_certain(flow):
    """A certain map keeps the covariance that a softmax carries in diagonal mode too."""
    mean, variance = torch.tensor([[0.3, -1.0, 0.5, 0.0]]), torch.tensor([[0.5, 0.2, 0.3, 1.0]])
    logits = site_value("z", mean, variance, propagation_of(flow, "exact"), event_dim=1)
    pairs = linear(
        softmax_value(logits), torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    )
    assert float(pairs.variance.min()) > 1e-3
    assert float(linear(pairs, torch.tensor([[1.0, 1.0]])).variance[0, 0]) == pytest.approx(
        0, abs=1e-6
    )
