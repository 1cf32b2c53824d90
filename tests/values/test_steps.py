"""A step that says nothing claims nothing, and no step keeps the value alive that it made."""

import gc
import weakref
from dataclasses import dataclass

import numpy as np
import pytest

from moment_calculus.errors import DependenceWarning, UnsupportedMoments
from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.products import multiply, square
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.normalised.normalisation import normalise
from moment_calculus.operations.normalised.softmax import softmax_value
from moment_calculus.operations.shapes import broadcast, permute, reshape
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import (
    Gaussian,
    Spread,
    Step,
    Ties,
    cross_covariance,
    elementwise_covariance,
)
from moment_calculus.values.ancestry import as_vector
from moment_calculus.values.covariances import Query
from moment_calculus.values.lags import lag_covariance

MEAN, VARIANCE = np.array([0.5, -1.0, 2.0]), np.array([0.3, 1.0, 0.7])
FLOW = propagation_of("full", "exact")


@dataclass(frozen=True, eq=False)
class Silent(Step):
    """Made from a value, in a way of which nothing is said."""

    inputs: tuple = ()


def site(flow=FLOW):
    return site_value("z", MEAN, VARIANCE, flow)


def silent(source, axis=-1):
    return Gaussian(
        MEAN, Spread(VARIANCE), Silent((source,)), axis=axis, propagation=source.propagation
    )


def test_what_a_silent_step_made_is_tied_in_every_way():
    z = site()
    value = silent(z)
    assert value.ties == Ties.ALL
    assert not value.independent
    assert not value.batch_independent
    assert value.support == z.support
    assert value.origin is value
    assert value.step.entries(value) is None


def test_nothing_is_known_of_a_pair_with_what_a_silent_step_made():
    z = site()
    value = silent(z)
    for pair in ((value, z), (z, value), (value, scale_shift(z, 2.0)), (value, silent(z))):
        assert cross_covariance(*pair) is None
        assert elementwise_covariance(*pair) is None
    with pytest.raises(UnsupportedMoments, match="product"):
        multiply(value, z)
    with pytest.raises(UnsupportedMoments, match="difference"):
        subtract(value, z)
    with pytest.raises(UnsupportedMoments, match="sum"):
        add(value, z)
    z = site(propagation_of("diagonal", "exact"))
    with pytest.warns(DependenceWarning, match="taken as zero"):
        add(silent(z), z)


def test_nothing_is_known_within_what_a_silent_step_made():
    assert lag_covariance(silent(site()), (1,)) is None
    assert as_vector(silent(site(), axis=None)) is None


MADE = {
    "affine": lambda z: scale_shift(z, 2.0, 1.0),
    "function": lambda z: apply(activation("tanh"), z),
    "square": square,
    "product": lambda z: multiply(z, apply(activation("relu"), z)),
    "sum": lambda z: add(z, apply(activation("relu"), z)),
    "linear": lambda z: linear(z, np.ones((2, 3))),
    "index": lambda z: index(z, slice(0, 2)),
    "reshape": lambda z: reshape(z, (1, 3)),
    "permute": lambda z: permute(reshape(z, (1, 3)), (1, 0)),
    "broadcast": lambda z: broadcast(z, (2, 3)),
    "concatenate": lambda z: concatenate([z, scale_shift(z, 2.0)], -1),
    "softmax": softmax_value,
    "normalise": lambda z: normalise(z, eps=0.1),
    "vector": lambda z: as_vector(site_value("v", MEAN, VARIANCE, FLOW, event_dim=0)),
}


@pytest.mark.parametrize("name", MADE)
def test_no_cycle_keeps_a_value_alive(name):
    z = site()
    gc.disable()
    try:
        value = MADE[name](z).gaussian()
        value.joint_covariance()
        cross_covariance(value, z)
        alive = weakref.ref(value)
        del value
        assert alive() is None
    finally:
        gc.enable()


def test_no_question_outlives_its_answer():
    z = site()
    gc.disable()
    try:
        query = Query()
        query.mixed.cross(apply(activation("tanh"), z).gaussian(), z)
        answers = weakref.ref(query.answers)
        del query
        assert answers() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("look", ["covariance", "joint_covariance"])
def test_long_lines_of_affine_maps(look):
    value = linear(site(), np.eye(3))
    for _ in range(1500):
        value = scale_shift(value, 0.999, 0.01)
    found = value.covariance if look == "covariance" else value.joint_covariance()
    np.testing.assert_allclose(found, np.diag(VARIANCE) * 0.999**3000)


def test_long_lines_of_moves_of_a_function():
    value = apply(activation("tanh"), broadcast(site(), (2, 3)))
    for _ in range(1500):
        value = permute(value, (1, 0))
    assert value.gaussian().shape == (2, 3)


def test_values_are_small():
    """What one more operation knows of a value is no one more field of every value."""
    assert len(Gaussian.__slots__) <= 10


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_two_slices_of_one_value_meet_in_its_covariance(covariance):
    """As two values of which nothing but that is known, also behind affine maps."""
    x = site_value("x", MEAN, VARIANCE, propagation_of(covariance, "exact"))
    both = linear(x, np.array([[1.0, 2.0, 0.5], [0.3, -1.0, 1.5]]), None)
    first, second = index(both, (..., 0)), index(both, (..., 1))
    expected = both.joint_covariance()
    for a, b in ((0, 1), (1, 0), (0, 0)):
        left, right = (
            scale_shift((first, second)[a], -2.0, 1.0),
            scale_shift((first, second)[b], 0.5),
        )
        found = elementwise_covariance(left, right)
        np.testing.assert_allclose(found, -expected[a, b], rtol=1e-12)
    assert elementwise_covariance(first, index(silent(x), (..., 1))) is None
