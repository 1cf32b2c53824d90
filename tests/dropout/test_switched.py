"""Functions of what dropout switches have every property of a rule; what has no rule is refused."""

import gc
import itertools
import weakref

import numpy as np
import pytest

from moment_calculus.errors import ApproximationWarning, UnsupportedMoments
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.classes import class_rule, predictive_rule
from moment_calculus.operations.dropout.noise import bernoulli_mask, drop, where_mask
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.reductions import reduce_mean
from moment_calculus.operations.normalised.normalisation import FEW, normalise
from moment_calculus.operations.normalised.softmax import logsumexp_value, softmax_value
from moment_calculus.operations.shapes.concatenation import pad, stack
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.operations.windows.largest import window_maximum
from moment_calculus.operations.windows.pooling import Windows
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import cross_covariance
from tests.cases import ACTIVATIONS
from tests.checks.general import GENERAL, check_oracle, meetings
from tests.dropout.cases import random_inputs
from tests.dropout.switched_cases import CASES
from tests.oracles.quadrature import activation_moments

pytestmark = pytest.mark.filterwarnings("error")
FLOW = propagation_of("full", "exact")
P, K = 0.3, 0.7
MEAN = np.random.default_rng(2).normal(size=(2, 3))
FACTOR = 0.5 * np.random.default_rng(3).normal(size=(2, 3, 3))
TANH = activation("tanh")


def inputs():
    return random_inputs(MEAN, FACTOR, FLOW)


def layer(x=None, name="noise", p=P):
    return drop(inputs() if x is None else x, p, name, FLOW)


@pytest.mark.parametrize(("check", "case"), meetings([check_oracle, *GENERAL], CASES))
def test_property(check, case):
    check(case)


@pytest.mark.parametrize("row", ACTIVATIONS, ids=lambda row: row.name)
def test_every_activation(row):
    """E f = k E f(h/k) + (1 − k) f(0), and so are E f² and, of two units, the covariance k² C."""
    h = inputs()
    found = apply(row.activation, layer(h)).gaussian()
    for place in np.ndindex(2, 3):
        scale = h.variance[place] ** 0.5 / K
        kept = activation_moments(row.function, MEAN[place] / K, scale, row.kinks, row.growth)
        zero = row.function(np.zeros(1))[0]
        mean = K * kept["mean"] + P * zero
        second = K * (kept["variance"] + kept["mean"] ** 2) + P * zero**2
        assert found.mean[place] == pytest.approx(mean, rel=1e-6, abs=1e-9)
        assert found.variance[place] == pytest.approx(second - mean**2, rel=1e-6, abs=1e-9)
        gain = found.variance[place] and kept["gain"]
        cross = cross_covariance(found, h)[place[0], place[1], place[1]]
        assert cross == pytest.approx(gain * h.variance[place], rel=1e-5, abs=1e-9)
    plain = apply(row.activation, scale_shift(h, 1 / K)).gaussian()
    apart = K**2 * plain.covariance * (1 - np.eye(3))
    np.testing.assert_allclose(found.covariance * (1 - np.eye(3)), apart, rtol=1e-9, atol=1e-12)


def over_masks(function):
    """Mean and variance of a function of masks [2, 3], at inputs that are certain."""
    bits = np.array(list(itertools.product((0, 1), repeat=6))).reshape(-1, 2, 3)
    chances = np.prod(np.where(bits, K, P), axis=(1, 2))
    values = np.array([function(one / K * MEAN) for one in bits])
    mean = np.tensordot(chances, values, 1)
    return mean, np.tensordot(chances, (values - mean) ** 2, 1)


def padded(array, config, fill):
    widths = [entry[:2] for entry in config]
    return np.pad(array, [(0, 0)] * (array.ndim - len(widths)) + widths, constant_values=fill)


MOVES = {
    "reshape": (lambda y: reshape(y, (2, 1, 3)), lambda y: y.reshape(2, 1, 3)),
    "index": (lambda y: index(y, (0, slice(1, 3))), lambda y: y[0, 1:]),
    "repeated": (lambda y: index(y, (..., np.array([0, 0, 2]))), lambda y: y[..., [0, 0, 2]]),
    "stack": (lambda y: stack([y, MEAN], 1 - 3), lambda y: np.stack([y, MEAN], 1)),
    "pad": (
        lambda y: pad(y, padded, [(0, 0, 0), (1, 2, 0)], 0.5),
        lambda y: np.pad(y, [(0, 0), (1, 2)], constant_values=0.5),
    ),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("random", [False, True])
def test_masks_move_with_their_values(name, random):
    move, plain = MOVES[name]
    x = random_inputs(MEAN, 1e-9 * FACTOR, FLOW) if random else MEAN
    found = apply(TANH, move(layer(x))).gaussian()
    mean, variance = over_masks(lambda y: np.tanh(plain(y)))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-7, atol=1e-12)


def test_one_choice_of_two_random_values():
    """As in zoneout: h or its function, with one mask; then a function of the choice."""
    h = inputs()
    chosen = where_mask(bernoulli_mask("zones", np.full((2, 3), K), FLOW), apply(TANH, h), h)
    found = apply(activation("exp"), chosen).gaussian()
    for place in np.ndindex(2, 3):
        mean = MEAN[place]
        scale = h.variance[place] ** 0.5
        kept = activation_moments(lambda x: np.exp(np.tanh(x)), mean, scale, (0.0,))
        left = activation_moments(np.exp, mean, scale, (), 1.0)
        centre = K * kept["mean"] + P * left["mean"]
        second = sum(c * (m["variance"] + m["mean"] ** 2) for c, m in ((K, kept), (P, left)))
        assert found.mean[place] == pytest.approx(centre, rel=1e-9)
        assert found.variance[place] == pytest.approx(second - centre**2, rel=1e-8)


def test_one_mask_twice_is_one_mask():
    drawn = bernoulli_mask("noise", np.full((2, 3), K), FLOW)
    once, twice = multiply(drawn, inputs()), multiply(drawn, multiply(drawn, inputs()))
    np.testing.assert_allclose(twice.mean, once.mean)
    np.testing.assert_allclose(twice.variance, once.variance)


def test_functions_of_one_layer_know_each_other():
    """relu(y) − relu(−y) = y, with its covariance and with that of h."""
    h = inputs()
    y, relu = layer(h), activation("relu")
    same = subtract(apply(relu, y), apply(relu, scale_shift(y, -1.0))).gaussian()
    np.testing.assert_allclose(same.covariance, y.covariance, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(cross_covariance(same, h), h.covariance, rtol=1e-7, atol=1e-9)


def test_a_value_is_freed_with_its_last_use():
    """Branches hold no value that holds them, so that no collection has to run."""
    gc.disable()
    try:
        y = layer()
        apply(TANH, add(y, 1.0)).gaussian()
        reference = weakref.ref(y)
        del y
        assert reference() is None
    finally:
        gc.enable()


def five_masks():
    y = inputs()
    for place in range(5):
        y = layer(y, f"noise {place}")
    return apply(TANH, y).gaussian()


def other_elements():
    y = layer()
    return multiply(index(y, (..., slice(0, 2))), index(y, (..., slice(1, 3))))


def centred():
    y = layer()
    return apply(TANH, subtract(y, reduce_mean(y, [1], keepdims=True))).gaussian()


REFUSED = {
    "5 random masks switch": five_masks,
    "or with other elements of it": other_elements,
    "what was computed with its mask": centred,
}


@pytest.mark.parametrize("cause", REFUSED)
def test_refusals(cause):
    with pytest.raises(UnsupportedMoments, match=cause) as raised:
        REFUSED[cause]()
    assert "linear map" in raised.value.remedy
    assert raised.value.sites


OF_MANY = {
    "a softmax": softmax_value,
    "a logsumexp": logsumexp_value,
    "a normalisation": lambda value: normalise(value, eps=1e-5),
    "a likelihood of classes": class_rule,
    "the probability of classes": predictive_rule,
}


@pytest.mark.parametrize("what", OF_MANY)
def test_functions_of_many_elements_warn(what):
    """They take them as Gaussian; nothing is said behind a map, whose outputs see many masks."""
    with pytest.warns(ApproximationWarning, match=f"^{what} .* straight after dropout"):
        OF_MANY[what](layer())
    OF_MANY[what](linear(layer(), np.tile(np.eye(3), (3, 1))))


def test_largest_entries_warn():
    with pytest.warns(ApproximationWarning, match="^the largest entry of windows"):
        window_maximum(drop(MEAN, P, "noise", FLOW), Windows((1, 2), (1, 1), (1, 1)))


def test_normalisation_of_many_features_says_nothing():
    wide = drop(np.ones((1, FEW)), P, "wide", FLOW)
    normalise(add(wide, random_inputs(np.ones((1, FEW)), np.eye(FEW)[None], FLOW)), eps=1e-5)
