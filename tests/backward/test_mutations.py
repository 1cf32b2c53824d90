"""The tests of the sweep can fail: each mistake in it fails its own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from moment_calculus.numerics.arrays import namespace
from moment_calculus.operations.elementwise.products import _Product
from moment_calculus.operations.linear.maps import LinearMap
from moment_calculus.operations.normalised.softmax import LogitsStep
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.values import elementwise
from moment_calculus.values.backward import cotangents, sweep
from moment_calculus.values.backward.cotangents import Cotangent, OuterCotangent
from moment_calculus.values.backward.residuals import SharedResiduals
from moment_calculus.values.gaussian import Root
from moment_calculus.values.step import Added
from tests.backward import test_exact, test_joint_residuals, test_parameters, test_properties
from tests.backward.programs import CASES


def case(name: str) -> Any:
    return next(case for case in CASES if case.name == name)


exactly = lambda name: partial(test_exact.test_linear_programs_are_exact, case(name))  # noqa: E731
as_reference = lambda name: partial(  # noqa: E731
    test_exact.test_networks_are_those_of_the_reference, case(name)
)
nearly = lambda name: partial(test_exact.test_small_variances, case(name))  # noqa: E731


@dataclass(frozen=True)
class Mutant:
    """A mistake in the place of an owner's attribute, and the check that must fail."""

    mistake: str
    owner: Any
    name: str
    wrong: Any
    check: Callable[[], None]


def nothing(*_: Any) -> None:
    """No term of its own."""


def without_bias(step: Any, value: Any, input_index: int, cotangent: Any) -> Any:
    pulled = PULL(step, value, input_index, cotangent)
    return 0 * pulled if step.inputs[input_index] is step.bias else pulled


def squared_first(cotangent: Cotangent, axis: int) -> Cotangent:
    xp = namespace(cotangent.array)
    squares = xp.sum(cotangent.array * cotangent.array, axis=axis, keepdims=True)
    return replace(cotangent, array=squares**0.5)


def forgotten_slot(cotangent: Cotangent, row: int) -> Cotangent:
    carried = tuple(None if r == row else a for r, a in enumerate(cotangent.carried))
    return replace(SUMMED(cotangent, cotangent.carried[row]), carried=carried)


def forgotten_rows(cotangent: Cotangent, row: int) -> Cotangent:
    carried = tuple(None if r == row else a for r, a in enumerate(cotangent.carried))
    return replace(cotangent, carried=carried)


def last_use(first: Cotangent, second: Cotangent) -> Cotangent:
    return second


def without_covariances(left: Any, right: Any) -> Any:
    found = PRODUCTS(left, right)
    ones = namespace(found).ones_like(found[0, 0])
    return found * namespace(found).eye(found.shape[-1], dtype=ones.dtype)


def whole_gain(variance: Any, explained: Any) -> tuple[Any, Any]:
    xp = namespace(variance)
    return xp.ones_like(variance), xp.clip(variance - explained, min=0.0)


PULL, SUMMED, PRODUCTS = LinearMap.pull, Cotangent._summed, cotangents.products
always = lambda *_: True  # noqa: E731
MUTANTS = [
    Mutant(
        "no residual of functions",
        elementwise.Applied,
        "own",
        nothing,
        as_reference("perceptron of relu"),
    ),
    Mutant("no S v", LinearMap, "own", nothing, as_reference("perceptron of tanh")),
    Mutant("no variance of products", _Product, "own", nothing, as_reference("a gate")),
    Mutant(
        "no covariance of a site",
        Root,
        "own",
        lambda step, value: Added(value.variance),
        exactly("correlated inputs"),
    ),
    Mutant("no bias", LinearMap, "pull", without_bias, as_reference("a shared bias")),
    Mutant(
        "squares before sums",
        Cotangent,
        "_summed",
        squared_first,
        exactly("effects of groups, summed"),
    ),
    Mutant("rows without a slot", Cotangent, "in_slot", forgotten_slot, exactly("scalar products")),
    Mutant(
        "rows that mix", Cotangent, "spread", forgotten_rows, exactly("a batch without its mean")
    ),
    Mutant("one use of two", Cotangent, "plus", last_use, exactly("a batch without its mean")),
    Mutant("leaves alone", sweep._Graph, "is_alone", always, exactly("slices of one site")),
    Mutant(
        "weights used once",
        sweep._Graph,
        "is_used_once",
        always,
        exactly("one layer at several rows"),
    ),
    Mutant(
        "steps that others use passed",
        sweep._Graph,
        "replaces",
        always,
        partial(test_exact.test_rows_apart_are_those_of_all_elements, case("rearranged rows")),
    ),
    Mutant(
        "repeated elements taken for others",
        Moved,
        "repeats",
        False,
        lambda: test_exact.check_rows(test_exact.values_of(test_exact.REPEATING)),
    ),
    Mutant(
        "slopes of weights forgotten",
        OuterCotangent,
        "scaled",
        lambda use, scale: use,
        nearly("a weight and a function of it"),
    ),
    Mutant("pulls of a softmax", LogitsStep, "pull", lambda s, v, p, c: c, nearly("softmax")),
    Mutant(
        "functions apart",
        SharedResiduals,
        "parts",
        lambda _: [],
        test_joint_residuals.check_a_fork_that_is_joined,
    ),
    Mutant(
        "heads apart", sweep, "products", without_covariances, test_parameters.check_joint_moments
    ),
    Mutant(
        "gains beyond the variance",
        elementwise,
        "shrunk",
        whole_gain,
        partial(test_properties.check_the_gain_shrinks, "tanh"),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mistake.replace(" ", "_"))
def test_mistakes_are_caught(mutant, monkeypatch):
    mutant.check()
    monkeypatch.setattr(mutant.owner, mutant.name, mutant.wrong)
    with pytest.raises(AssertionError):
        mutant.check()
