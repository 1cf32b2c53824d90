"""Chains are recognised by their values; what is merely near a function of the table is not."""

import math

import numpy as np
import pytest
import scipy.special
import torch

from moment_calculus.functions.integrated import crossings
from moment_calculus.functions.recognition import recognised
from moment_calculus.functions.table import Integrated, Rescaled, activation
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from tests.cases import ACTIVATIONS

ROOT = math.sqrt(2 / math.pi)


def softplus(x):
    return np.logaddexp(x, 0.0)


def silu(x):
    return x * scipy.special.expit(x)


def gelu_tanh(x, root=ROOT, cubic=0.044715):
    return 0.5 * x * (1 + np.tanh(root * (x + cubic * x**3)))


KNOWN = [case for case in ACTIVATIONS if case.name != "chain"]


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case.name)
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (-2.5, 0.0), (0.3, 1.7)])
def test_functions_of_the_table_are_recognised(case, scale, shift):
    chain = Integrated(
        lambda x: scale * case.activation(x) + shift,
        case.activation.knots,
        frozenset({2.5, 2.0, 1.5, math.log(2)}),
    )
    found = recognised(chain)
    assert not isinstance(found, Integrated)
    x = np.linspace(-20.3, 20.1, 57)
    np.testing.assert_allclose(found(x), chain(x), rtol=1e-12, atol=1e-13)


NEAR = {
    "gelu and its approximation": lambda x: 0.5 * (x * scipy.special.ndtr(x) + gelu_tanh(x)),
    "gelu_tanh of a rounded root": lambda x: gelu_tanh(x, root=0.79788),
    "gelu_tanh of another cubic term": lambda x: gelu_tanh(x, cubic=0.0447),
    "quick gelu and gelu": lambda x: 0.999 * x * scipy.special.ndtr(x) + 0.001 * silu(1.702 * x),
    "silu with a bump": lambda x: silu(x) + 1e-5 * np.exp(-(x**2)),
    "silu off by a sine": lambda x: silu(x) + 1e-5 * np.sin(x),
    "softplus of another rate": lambda x: softplus(1.01 * x),
    "softplus with a floor": lambda x: np.maximum(softplus(x), 1e-4),
    "softplus that is linear beyond 5": lambda x: np.where(x > 5, x, softplus(x)),
    "softplus that stops": lambda x: np.minimum(softplus(x), 30.0),
    "softplus that stops far away": lambda x: np.minimum(softplus(x), 9000.0),
    "tanh that is clipped": lambda x: np.clip(np.tanh(x), -0.9999, 0.9999),
    "sigmoid of a rounded mixture": lambda x: 1 / (1 + np.exp(-1.0001 * x)),
    "elu with a rounded left side": lambda x: np.where(x > 0, x, np.expm1(1.001 * x)),
    "smooth relu": lambda x: 0.5 * (x + np.sqrt(x * x + 1e-8)),
    "narrow softplus": lambda x: softplus(1e4 * x) / 1e4,
    "relu with a small curvature": lambda x: np.maximum(x, 0) + 1e-9 * x * x,
    "sine and its cubic": lambda x: np.where(np.abs(x) < 1e-2, x - x**3 / 6, np.sin(1.00001 * x)),
    "power that saturates": lambda x: np.minimum(x * x, 2000.0),
}


@pytest.mark.parametrize("name", NEAR)
@pytest.mark.parametrize("single", [False, True])
def test_near_misses_are_not_recognised(name, single):
    chain = Integrated(NEAR[name], (0.0,), frozenset({1.0, 2.0, 1.702}))
    assert recognised(chain, single=single) is chain


def test_other_bounds_give_another_function():
    near = Integrated(lambda x: np.clip(x, 0.0, 6.001), (0.0, 6.001))
    assert recognised(near).knots == (0.0, 6.001)
    assert recognised(Integrated(lambda x: np.clip(x, 0.0, 6.0), (0.0, 6.0))).knots == (0.0, 6.0)


def test_rounded_constants_are_those_of_single_precision_only():
    chain = Integrated(lambda x: gelu_tanh(x, float(np.float32(ROOT)), float(np.float32(0.044715))))
    assert recognised(chain, single=True) == activation("gelu_tanh")
    assert recognised(chain) is chain


def test_rates_come_from_the_constants_of_the_chain():
    function = lambda x: x * scipy.special.expit(1.702 * x)  # noqa: E731
    found = recognised(Integrated(function, (0.0,), frozenset({1.702})))
    assert isinstance(found, Rescaled)
    assert (found.activation, found.inner) == (activation("silu"), 1.702)
    unknown = Integrated(function)
    assert recognised(unknown) is unknown


def test_chains_with_arrays_are_left_alone():
    levels = np.array([0.1, 0.2])
    for chain in (
        Integrated(lambda x: np.maximum(x, 0.0), (0.0,), None),
        Integrated(lambda x: np.maximum(x, levels)),
        Integrated(lambda x: torch.relu(torch.as_tensor(x))),
    ):
        assert recognised(chain) is chain


def test_crossings():
    found = crossings(Integrated(lambda x: x**3 - x), 0.1)
    np.testing.assert_allclose([place for place, _ in found], np.roots([1, 0, -1, -0.1])[[1, 2, 0]])
    assert crossings(Integrated(lambda x: np.exp(x)), -1.0) == ()


def test_eager_programs_do_not_look():
    """What is run once only takes no look at what it computes."""
    inputs = Moments(torch.zeros(2), variance=torch.ones(2))
    value = as_value(inputs, "h", propagation_of("diagonal", "exact"))
    gate = multiply(value, apply(activation("sigmoid"), value))
    assert gate.recognised_function is gate.function
    assert not isinstance(add(value, apply(activation("tanh"), value)), type(gate))
