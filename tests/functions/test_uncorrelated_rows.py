"""Rows without correlations take two terms of the series: values and derivatives are the same."""

import numpy as np
import torch

from moment_calculus.functions.families.logistic import Tanh
from moment_calculus.functions.pairs import mehler, uncorrelated

RNG = np.random.default_rng(0)
ROWS, SIZE = 24, 16


def test_rows_with_and_without_correlations_agree_with_the_whole_series(monkeypatch):
    factor = RNG.normal(size=(ROWS, SIZE, SIZE)) / 4
    factor[6:] = 0  # a quarter of the rows has correlations
    covariance = factor @ factor.transpose(0, 2, 1) + 0.3 * np.eye(SIZE)
    mean, weights = RNG.normal(size=(ROWS, SIZE)), torch.tensor(RNG.normal(size=covariance.shape))

    def found():
        inputs = [torch.tensor(part, requires_grad=True) for part in (mean, covariance)]
        variance = torch.diagonal(inputs[1], dim1=-2, dim2=-1)
        spread = Tanh().moments(inputs[0], variance)[1]
        result = mehler.truncated_covariance(Tanh(), *inputs, 32, None, spread)
        return [result, *torch.autograd.grad((weights * result).sum(), inputs)]

    apart = found()
    monkeypatch.setattr(mehler, "correlated_rows", lambda covariance: None)
    for ours, whole in zip(apart, found(), strict=True):
        np.testing.assert_allclose(ours.detach(), whole.detach(), rtol=1e-9, atol=1e-10)


def test_the_derivatives_of_the_gradient_are_those_of_two_terms():
    function, size = Tanh(), 5
    weights = torch.tensor(RNG.normal(size=(2, size, size)))

    def bends(compute):
        mean = torch.tensor(np.linspace(-1, 1, 2 * size).reshape(2, size), requires_grad=True)
        covariance = torch.eye(size, dtype=mean.dtype).expand(2, size, size).clone()
        covariance.requires_grad_()
        moments = mean, torch.diagonal(covariance, dim1=-2, dim2=-1), 0 * mean
        value = (weights * compute(moments, covariance)).sum()
        (slope,) = torch.autograd.grad(value, covariance, create_graph=True)
        return torch.autograd.grad((weights * slope).sum(), [mean, covariance])

    ours = bends(lambda *arrays: uncorrelated.covariance_without_correlations(function, *arrays))
    two_terms = uncorrelated._two_terms(function)
    expected = bends(
        lambda moments, covariance: two_terms(moments[0], moments[1], covariance, moments[2])
    )
    torch.testing.assert_close(ours, expected)
    assert all(bend.abs().max() > 0.01 for bend in ours)
