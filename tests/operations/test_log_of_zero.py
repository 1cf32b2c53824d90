"""log(eˣ + eʸ) where y is −∞ in some rows, the logarithm of a state that cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.table import activation
from moment_calculus.operations import catalogue as ops
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from tests.checks.jaxprs import by_numpy

FLOW = propagation_of("full", "exact")
POSSIBLE = np.array([1.0, 0.0, 1.0])
MEAN = np.array([0.3, -1.0, 2.0])
FILLED = {
    "where": lambda possible, value: ops.where(possible > 0, value, -np.inf),
    "sum": lambda possible, value: ops.add(value, -1.0 / possible + 1.0),  # an array with −∞
}


def terms(mean, possible, filled, known=None):
    """E log(S(x) + S(−x)), which is 0, in possible rows; E log S(x) in others, S logistic."""
    x = as_value(Moments(mean, variance=mean * 0 + 0.5), "x", FLOW)
    yes, no = (
        ops.apply(activation("logsigmoid"), ops.scale_shift(x, sign)) for sign in (1.0, -1.0)
    )
    yes = yes if known is None else filled(known, yes)
    return ops.log_add_exp(yes, filled(possible, no)).gaussian().mean, yes.gaussian().mean


@pytest.mark.parametrize("filled", FILLED.values(), ids=FILLED)
def test_in_torch(filled):
    mean = torch.tensor(MEAN, requires_grad=True)
    found, alone = terms(mean, torch.tensor(POSSIBLE), filled)
    (slope,) = torch.autograd.grad(found.sum(), mean, retain_graph=True)
    (expected,) = torch.autograd.grad(alone[1], mean)
    assert found.detach().numpy() == pytest.approx([0.0, alone[1].item(), 0.0], abs=1e-6)
    assert slope.numpy() == pytest.approx(expected.numpy(), abs=1e-6)


@pytest.mark.usefixtures("double_precision_in_jax")
def test_traced_in_jax():
    def of_sum(mean, possible):  # all rows are possible of one operand, which is not known
        return terms(mean, possible, FILLED["where"], possible + 1.0)[0].sum()

    found, slope = by_numpy(jax.value_and_grad(of_sum))(MEAN, POSSIBLE)
    of_row = lambda mean: terms(mean, jnp.asarray(POSSIBLE), FILLED["where"])[1][1]  # noqa: E731
    alone, expected = by_numpy(jax.value_and_grad(of_row))(MEAN)
    assert float(found) == pytest.approx(float(alone), abs=1e-6)
    assert np.asarray(slope) == pytest.approx(np.asarray(expected), abs=1e-6)
