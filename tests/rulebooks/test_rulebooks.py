"""Rule books in programs, books of users, and what is refused; see also ``cases.py``."""

import importlib
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from moment_calculus import rulebooks
from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.predictions.moments import as_value
from moment_calculus.rulebooks import RULEBOOKS, propagation_of
from moment_calculus.values import cross_covariance
from moment_calculus.values.propagation import (
    RuleBook,
    register_replaceable,
    replaceable_operations,
)
from pyro_moments import Moments, propagate

MEAN = torch.tensor([0.4, -0.7, 1.1], dtype=torch.float64)
ROOT = torch.tensor([[0.5, 0.0, 0.0], [0.3, 0.6, 0.0], [-0.2, 0.4, 0.3]], dtype=torch.float64)
WEIGHT = torch.tensor([[0.5, -1.0, 0.3], [1.2, 0.4, -0.6]], dtype=torch.float64)
SAMPLES = 400_000

PROGRAMS = {
    "tanh": torch.tanh,
    "layers": lambda x: F.linear(F.gelu(F.linear(torch.tanh(x), WEIGHT)), WEIGHT.T),
    "residual": lambda x: x + F.relu(x),
    "gate": lambda x: x * torch.sigmoid(1.7 * x),
    "product": lambda x: x[1:] * x[:-1],
    "product of functions": lambda x: torch.tanh(x[1:]) * torch.exp(0.3 * x[:-1]),
    "chain": lambda x: torch.log1p(torch.exp(torch.tanh(x))),
    "root": lambda x: (0.1 + F.softplus(x)) ** -0.5,
}


def by_jacobian(program, mean, covariance):
    """The delta method: the program at the mean, and J Σ Jᵀ."""
    jacobian = torch.autograd.functional.jacobian(program, mean)
    return program(mean), jacobian @ covariance @ jacobian.T


def by_samples(program, mean, covariance):
    """The exact moments, but for the noise of samples."""
    noise = torch.randn(SAMPLES, 3, dtype=mean.dtype, generator=torch.manual_seed(0))
    draws = torch.vmap(program)(mean + noise @ torch.linalg.cholesky(covariance).T)
    return draws.mean(0), draws.T.cov()


# What a book stands for in these programs, and how far its results may be off, in standard
# deviations.
BOOKS = {"exact": (by_samples, 0.01), "dvi": (by_samples, 0.03), "first_order": (by_jacobian, 1e-7)}
MATCHED = {"layers", "product of functions"}  # by Gaussians on the way: exact to first order alone
CASES = [(b, p) for b in BOOKS for p in PROGRAMS if b == "first_order" or p not in MATCHED]


@pytest.mark.parametrize(("book", "program"), CASES)
def test_moments_are_those_that_the_book_stands_for(book, program):
    oracle, tolerance = BOOKS[book]
    covariance = ROOT @ ROOT.T
    inputs = Moments(MEAN, covariance=covariance)
    result = propagate(PROGRAMS[program], inputs, rules=book, covariance="full")
    mean, spread = oracle(PROGRAMS[program], MEAN, covariance)
    size = spread.diagonal().max()
    assert ((result.mean - mean).abs() <= tolerance * size**0.5).all()
    assert ((result.covariance - spread).abs() <= tolerance * size).all()


def test_scalar_products_and_products_along_an_axis_are_linearised():
    rows, vector = (Moments(torch.ones(s), variance=torch.ones(s)) for s in ((2, 3), (3,)))
    product = propagate(torch.matmul, rows, vector, rules="first_order", covariance="full")
    torch.testing.assert_close(product.variance, torch.full((2,), 6.0))
    for covariance in ("full", "diagonal"):
        whole = propagate(lambda x: x.prod(0), rows, rules="first_order", covariance=covariance)
        torch.testing.assert_close(whole.variance, torch.full((3,), 2.0))


def test_weights_and_inputs_are_linearised_together():
    """The first order of x @ W leaves the product of both deviations out."""
    weight = Moments(WEIGHT, variance=torch.full_like(WEIGHT, 0.3))
    inputs = Moments(MEAN, covariance=ROOT @ ROOT.T)
    result = propagate(F.linear, inputs, weight, rules="first_order", covariance="full")
    own = torch.eye(2, dtype=MEAN.dtype) * 0.3 * (MEAN @ MEAN)
    expected = WEIGHT @ ROOT @ ROOT.T @ WEIGHT.T + own
    torch.testing.assert_close(result.mean, WEIGHT @ MEAN)
    torch.testing.assert_close(result.covariance, expected)


@pytest.mark.parametrize("covariance", ["diagonal", "backward"])
def test_a_convolution_of_random_inputs_and_weights_is_linearised(covariance):
    """Without the product of both deviations, which the exact rule has."""
    x, w = (
        Moments(torch.rand(shape).double(), variance=torch.rand(shape).double())
        for shape in ((2, 2, 5), (3, 2, 3))
    )
    found = propagate(F.conv1d, x, w, rules="first_order", covariance=covariance)
    torch.testing.assert_close(found.mean, F.conv1d(x.mean, w.mean))
    expected = F.conv1d(x.variance, w.mean**2) + F.conv1d(x.mean**2, w.variance)
    torch.testing.assert_close(found.variance, expected)
    exact = propagate(F.conv1d, x, w, covariance=covariance)
    torch.testing.assert_close(exact.variance, expected + F.conv1d(x.variance, w.variance))


def test_unknown_operations_are_refused_with_the_candidates():
    book = RuleBook("mine", operations={"products": torch.mul})
    with pytest.raises(
        ValueError, match=r"operation='products' is not one of categorical, convolution,"
    ):
        propagation_of("full", book)


def test_operations_that_ask_for_a_rule_can_be_named(monkeypatch):
    known = set(replaceable_operations())
    monkeypatch.setattr("moment_calculus.values.propagation._REPLACEABLE_OPERATIONS", known)
    name = register_replaceable("of_this_test")
    book = RuleBook("mine", operations={name: torch.mul})
    assert propagation_of("full", book).replacement(name) is torch.mul
    assert propagation_of("full", "exact").replacement(name) is None


def test_modules_without_a_book_are_left_alone(monkeypatch, tmp_path):
    (tmp_path / "shared_by_books.py").write_text("SLOPE = 1.0")
    names = RULEBOOKS.keys()
    monkeypatch.setattr(rulebooks, "__path__", [*rulebooks.__path__, str(tmp_path)])
    try:
        assert importlib.reload(rulebooks).RULEBOOKS.keys() == names
    finally:
        sys.modules.pop("moment_calculus.rulebooks.shared_by_books", None)
        monkeypatch.undo()
        importlib.reload(rulebooks)


def test_unknown_names_are_refused_with_the_candidates():
    with pytest.raises(ValueError, match=r"rules='second' is not one of exact, dvi, first_order"):
        propagation_of("full", "second")


def test_covariances_with_the_argument_follow_the_book():
    covariance = (ROOT @ ROOT.T).numpy()
    inputs = Moments(MEAN.numpy(), covariance=covariance)
    x = as_value(inputs, "x", propagation_of("full", "first_order"))
    result = apply(activation("tanh"), x).gaussian()
    slope = 1 - np.tanh(MEAN.numpy()) ** 2
    np.testing.assert_allclose(cross_covariance(result, x), slope[:, None] * covariance, rtol=1e-9)
