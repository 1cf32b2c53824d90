"""Variances, covariances and gradients of stochastic units, also at extreme arguments."""

import numpy as np
import pytest
import torch

from moment_calculus.operations.dropout.one_hot import one_hot
from moment_calculus.operations.normalised.softmax import softmax_value
from moment_calculus.values import Gaussian, Spread
from pyro_moments import Moments, propagate, units

DRAWN = [units.bernoulli_logistic, units.bernoulli_probit]
DRAWN += [units.stochastic_rectifier, units.gumbel_argmax]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit", DRAWN, ids=lambda unit: unit.__name__)
def test_extreme_arguments(unit, dtype):
    weights = torch.tensor([[1.0, 2.0], [0.5, -1.0], [0.3, 0.1]], dtype=dtype)
    for loc in (-1e6, -30.0, 0.0, 200.0):
        for size in (0.0, 1e-30, 1.0, 1e10):
            mean = torch.tensor([[loc, 0.1, -loc]], dtype=dtype, requires_grad=True)
            variance = torch.tensor([[size, size, 1.0]], dtype=dtype, requires_grad=True)
            inputs = Moments(mean, variance=variance)
            found = propagate(lambda x: unit(x) @ weights, inputs, covariance="full")
            total = found.mean.sum() + found.variance.sum()
            gradients = torch.autograd.grad(total, (mean, variance), allow_unused=True)
            assert bool((found.variance >= 0).all())
            for part in (found.mean, found.variance, *gradients):
                assert part is None or bool(torch.isfinite(part).all())


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_covariances_of_a_drawn_class_are_positive_semi_definite(scale):
    """Of the class, and of the class together with its logits."""
    random = np.random.default_rng(0)
    factor = scale * random.normal(size=(20, 5, 5))
    covariance = factor @ factor.mT
    diagonal = np.diagonal(covariance, axis1=-2, axis2=-1)
    logits = Gaussian(random.normal(size=(20, 5)) * 2, Spread(diagonal, covariance))
    drawn = one_hot(softmax_value(logits), logits.propagation)
    step = drawn.step.source.step
    assert np.linalg.eigvalsh(step.rest).min() > -1e-12
    cross = step.through(0, step.source.step.through(0, covariance))
    both = np.block([[covariance, cross.mT], [cross, drawn.covariance]])
    scales = np.sqrt(np.diagonal(both, axis1=-2, axis2=-1))
    correlations = both / (scales[..., :, None] * scales[..., None, :])
    if scale <= 1:  # the rule of a softmax has no positive joint covariance with wider logits
        assert np.linalg.eigvalsh(correlations).min() > -1e-10
