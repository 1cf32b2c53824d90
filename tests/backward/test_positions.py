"""A network shared by positions that are pooled: weights and noise are shared too."""

import numpy as np
import pytest
import torch

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.reductions import reduce_mean
from moment_calculus.values import Gaussian, Spread, Ties
from moment_calculus.values.backward import asked
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements

X = torch.tensor(np.random.default_rng(3).normal(size=(4, 7, 3)))  # [rows, positions, features]
PLAIN = {"tanh": torch.tanh, "relu": torch.relu}


def weight(name, shape, scale):
    random = np.random.default_rng(len(name))
    return Gaussian(
        torch.tensor(random.normal(size=shape) / shape[-1] ** 0.5),
        Spread(torch.tensor(random.uniform(0.5, 1.5, size=shape) * scale**2)),
        support=all_elements([name]),
        ties=Ties.NONE,
        propagation=Propagation("backward"),
    )


def test_a_pooled_linear_network_is_that_of_the_pooled_inputs():
    first, last = weight("first", (5, 3), 0.3), weight("last", (2, 5), 0.4)
    pooled = reduce_mean(linear(linear(X, first), last), [1])
    mean = X.mean(1)
    # Var[w2 w1 x] = V2 (m1 x)² + (m2² + V2) V1 x² for independent weights
    exact = (mean @ first.mean.T) ** 2 @ last.variance.T
    exact = exact + mean**2 @ first.variance.T @ (last.mean**2 + last.variance).T
    torch.testing.assert_close(asked.variance(pooled), exact, rtol=1e-10, atol=0)
    of_pool = linear(linear(mean, first), last)
    torch.testing.assert_close(asked.covariance(pooled), asked.covariance(of_pool))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("scale", [0.05, 0.3])
def test_a_pooled_network_has_the_deviation_of_draws(name, scale):
    first, middle = weight("first", (12, 3), scale), weight("middle", (12, 12), scale)
    function = activation(name)
    hidden = apply(function, linear(X, first))
    pooled = reduce_mean(apply(function, linear(hidden, middle)), [1])
    count, random = 20_000, torch.Generator().manual_seed(0)
    w1, w2 = (
        value.mean
        + value.variance**0.5
        * torch.randn((count, *value.shape), generator=random, dtype=torch.double)
        for value in (first, middle)
    )
    inner = PLAIN[name](torch.einsum("rti,noi->nrto", X, w1))
    outputs = PLAIN[name](torch.einsum("nrti,noi->nrto", inner, w2)).mean(2)
    ratio = asked.variance(pooled) ** 0.5 / outputs.std(0)
    error = 4 / (2 * count) ** 0.5
    assert abs(ratio.log().mean().exp() - 1) < 0.015 + error
    assert (ratio - 1).abs().median() < 0.02 + error  # one unit of relu is nearly always zero


def test_many_features_go_back_in_blocks(monkeypatch):
    value = linear(apply(activation("tanh"), linear(X, weight("first", (5, 3), 0.3))), LAST)
    whole = asked.variance(value)
    monkeypatch.setattr(asked, "LARGEST", 300)  # two features of 140 hidden units
    torch.testing.assert_close(asked.variance(value), whole, rtol=1e-12, atol=0)


LAST = torch.tensor(np.random.default_rng(7).normal(size=(9, 5)))
