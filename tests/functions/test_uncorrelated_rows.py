"""Rows without correlations take two terms of the series: values and derivatives are the same."""

from __future__ import annotations

import numpy as np
import torch

from moment_calculus.functions.families.logistic import Tanh
from moment_calculus.functions.pairs import mehler

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
