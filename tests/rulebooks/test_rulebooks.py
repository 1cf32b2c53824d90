"""Rule books in programs, books of users, and what is refused; see also ``cases.py``."""

from __future__ import annotations

import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import numpyro_moments
import pyro_moments
from moment_calculus import rulebooks
from moment_calculus.errors import ApproximationWarning, UnsupportedMoments
from moment_calculus.functions.base import Delegating
from moment_calculus.functions.derived import Derived, left_out
from moment_calculus.functions.families.logistic import Sigmoid
from moment_calculus.functions.families.relu import ReLU
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.classes import class_rule, predictive_rule
from moment_calculus.numerics.arrays import expit
from moment_calculus.operations.elementwise.unary import apply, site_value
from moment_calculus.predictions.moments import as_value
from moment_calculus.rulebooks import RULEBOOKS, propagation_of
from moment_calculus.values import cross_covariance
from moment_calculus.values.propagation import EXACT, RuleBook, register_replaceable
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
BOOKS = {
    "exact": (by_samples, 0.01),
    "dvi": (by_samples, 0.03),
    "first_order": (by_jacobian, 1e-7),
}
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


class Halved(Delegating):
    """A function of which half is taken."""

    def __call__(self, x):
        return self.function(x) / 2

    def moments(self, mean, variance):
        centre, spread = self.function.moments(mean, variance)
        return centre / 2, spread / 4

    def hermite(self, mean, variance, order):
        return [term / 2 for term in self.function.hermite(mean, variance, order)]

    def gain(self, mean, variance):
        return self.function.gain(mean, variance) / 2

    def pair_covariance(self, mean, variance, covariance):
        return self.function.pair_covariance(mean, variance, covariance) / 4


class Halves(RuleBook):
    def ruled(self, function):
        return Halved(function)


def test_a_book_of_the_users_own_serves_everywhere():
    inputs = Moments(MEAN, covariance=ROOT @ ROOT.T)
    halved = propagate(PROGRAMS["residual"], inputs, rules=Halves("halves"), covariance="full")
    plain = propagate(lambda x: x + F.relu(x) / 2, inputs, covariance="full")
    torch.testing.assert_close(halved.mean, plain.mean)
    torch.testing.assert_close(halved.covariance, plain.covariance, rtol=1e-6, atol=1e-9)


class Mistaken(Delegating):
    """Moments of a gate at the mean, and all else of the function."""

    def moments(self, mean, variance):
        gate = expit(10 * mean)
        return gate * mean, gate * variance + gate * (1 - gate) * mean**2


class MistakenReLU(ReLU):
    """The same by inheritance."""

    moments = Mistaken.moments


class Mistakes(RuleBook):
    def ruled(self, function):
        return Mistaken(function) if function.name == "relu" else function


class Inherited(RuleBook):
    def ruled(self, function):
        return MistakenReLU() if function.name == "relu" else function


@pytest.mark.parametrize("kind", [Mistakes, Inherited])
@pytest.mark.parametrize(
    ("package", "program"),
    [
        (pyro_moments, "covariance"),
        (pyro_moments, "cross-covariance"),
        (numpyro_moments, "covariance"),  # JAX's x + relu(x) is one function, and no relu
    ],
)
def test_what_a_book_leaves_out_is_refused_or_derived(package, program, kind):
    host, book = package is pyro_moments, kind("mistakes", derive=False)
    relu = F.relu if host else jax.nn.relu
    array = torch.tensor if host else jnp.array
    inputs = package.Moments(array([-0.05, -0.05]), covariance=array([[1.0, 0.95], [0.95, 1.0]]))
    function = {"covariance": relu, "cross-covariance": lambda x: x + relu(x)}[program]
    with pytest.raises(UnsupportedMoments, match="define gain, hermite, pair_covariance in Mist"):
        package.propagate(function, inputs, rules=book, covariance="full").covariance  # noqa: B018
    found = package.propagate(relu, inputs, rules=book, covariance="diagonal")
    expected = Mistaken(activation("relu")).moments(inputs.mean, inputs.variance)[1]
    np.testing.assert_allclose(found.variance, expected, rtol=1e-6)
    derived = package.propagate(relu, inputs, rules=kind("derives"), covariance="full")
    np.testing.assert_allclose(derived.variance, expected, rtol=1e-6)
    eigenvalues = np.linalg.eigvalsh(np.asarray(derived.covariance, dtype=np.float64))
    assert (eigenvalues > 0).all()


class ByProbit(Delegating):
    """A sigmoid whose mean is S(μ/√(1 + π v/8)), as it is of a probit (MacKay 1992)."""

    def moments(self, mean, variance):
        return self(mean * (1 + np.pi * variance / 8) ** -0.5), self.function.moments(
            mean, variance
        )[1]


def test_one_rule_may_be_replaced():
    book = EXACT.replacing(sigmoid=ByProbit, linear=lambda x, weight, bias: x)
    assert book.name == "exact with another sigmoid and linear"
    inputs = Moments(MEAN, covariance=ROOT @ ROOT.T)
    close = propagate(torch.sigmoid, inputs, rules=book, covariance="full")
    expected = torch.sigmoid(MEAN * (1 + np.pi * (ROOT @ ROOT.T).diagonal() / 8) ** -0.5)
    torch.testing.assert_close(close.mean, expected)
    exact = propagate(torch.sigmoid, inputs, covariance="full")
    torch.testing.assert_close(close.covariance, exact.covariance, rtol=0.05, atol=0.0)
    weights = Moments(WEIGHT, variance=torch.ones_like(WEIGHT))
    same = propagate(F.linear, inputs, weights, rules=book, covariance="full")
    torch.testing.assert_close(same.covariance, inputs.covariance)
    tanh = propagate(torch.tanh, inputs, rules=book, covariance="full")
    torch.testing.assert_close(tanh.mean, propagate(torch.tanh, inputs).mean)
    with pytest.raises(ValueError, match="rule='sigmoids' is not one of abs, categorical, celu"):
        EXACT.replacing(sigmoids=ByProbit)


def test_a_gain_by_the_mean_is_its_derivative():
    """Of a smooth rule, at any spread; no larger than the variance allows."""
    mean = torch.linspace(-3.0, 3.0, 13, dtype=torch.float64)
    for variance in (1e-8, 0.01, 1.0, 100.0):
        spread = torch.full_like(mean, variance)
        rule = Derived(ByProbit(activation("sigmoid")), left_out(ByProbit))
        step = 1e-5
        up, down = (rule.moments(mean + s, spread)[0] for s in (step, -step))
        slope = (up - down) / (2 * step)
        most = (rule.moments(mean, spread)[1] / variance) ** 0.5
        torch.testing.assert_close(
            rule.gain(mean, spread), slope.clamp(-most, most), rtol=1e-6, atol=1e-9
        )
        square = rule.hermite(mean, spread, 3)[0] ** 2
        assert (square <= rule.moments(mean, spread)[1] * (1 + 1e-9)).all()


def test_books_are_refused_in_modes_that_they_do_not_have():
    book = RuleBook("mine", covariances=("diagonal",))
    with pytest.raises(ValueError, match=r"'mine' has no rules for covariance='full'"):
        propagation_of("full", book)
    assert propagation_of("diagonal", book).rulebook is book


def test_a_product_of_functions_takes_them_from_the_book():
    class Swapped(RuleBook):
        def ruled(self, function):
            return activation("relu") if type(function) is Sigmoid else function

    def gate(inner):
        return lambda x: torch.tanh(F.linear(x, WEIGHT)) * inner(F.linear(x, -WEIGHT))

    inputs = Moments(MEAN, covariance=ROOT @ ROOT.T)
    ours = propagate(gate(torch.sigmoid), inputs, rules=Swapped("swapped"), covariance="full")
    plain = propagate(gate(torch.relu), inputs, covariance="full")
    torch.testing.assert_close(ours.mean, plain.mean)
    torch.testing.assert_close(ours.covariance, plain.covariance)


def test_unknown_operations_are_refused_with_the_candidates():
    book = RuleBook("mine", operations={"products": torch.mul})
    with pytest.raises(
        ValueError, match=r"operation='products' is not one of categorical, largest,"
    ):
        propagation_of("full", book)


def test_operations_that_ask_for_a_rule_can_be_named():
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


# -------------------------------------------------------------------------------------------------
# vbp: what is largest, and classes

PYRO_MAX = (torch.maximum, lambda x: F.max_pool1d(x, 2), lambda x: x.amax(-1))
JAX_MAX = (
    jnp.maximum,
    lambda x: jnp.max(x.reshape(*x.shape[:-1], -1, 2), -1),
    lambda x: jnp.max(x, -1),
)
GENERATOR = np.random.default_rng(3)
MEANS = GENERATOR.normal(size=(2, 2, 3, 4))
SPREADS = GENERATOR.uniform(0.1, 2.0, size=(2, 2, 3, 4))


@pytest.mark.parametrize("covariance", ["full", "backward", "diagonal"])
@pytest.mark.parametrize("package", [pyro_moments, numpyro_moments])
def test_the_largest_has_the_moments_of_the_largest_mean(package, covariance):
    array, programs = (torch.tensor, PYRO_MAX) if package is pyro_moments else (jnp.array, JAX_MAX)
    inputs = [
        package.Moments(array(m), variance=array(v)) for m, v in zip(MEANS, SPREADS, strict=True)
    ]
    rows = [(MEANS[0].reshape(2, 3, 2, 2), SPREADS[0].reshape(2, 3, 2, 2)), (MEANS[0], SPREADS[0])]
    expected = [(np.moveaxis(MEANS, 0, -1), np.moveaxis(SPREADS, 0, -1)), *rows]
    for program, used, (mean, spread) in zip(programs, (2, 1, 1), expected, strict=True):
        found = package.propagate(program, *inputs[:used], rules="vbp", covariance=covariance)
        place = mean.argmax(-1)[..., None]
        np.testing.assert_allclose(found.mean, mean.max(-1), rtol=1e-6)
        largest = np.take_along_axis(spread, place, -1)[..., 0]
        np.testing.assert_allclose(found.variance, largest, rtol=1e-6)


def test_the_smallest_is_minus_the_largest_of_the_negatives():
    x, y = (
        Moments(torch.tensor(m), variance=torch.tensor(v))
        for m, v in zip(MEANS, SPREADS, strict=True)
    )
    found = propagate(torch.minimum, x, y, rules="vbp")
    torch.testing.assert_close(found.mean, torch.minimum(x.mean, y.mean))


def test_a_book_has_a_rule_for_classes_and_the_option_another():
    mean, spread = torch.tensor([0.3, -1.0, 0.5]).double(), torch.tensor([1.0, 0.4, 0.2]).double()

    def loss(**options):
        logits = site_value("f", mean, spread, propagation_of("diagonal", **options))
        return class_rule(logits).log_probs(logits)

    with pytest.warns(ApproximationWarning, match="rules='vbp' expands"):
        book = loss(rules="vbp")
    shares = mean.softmax(-1)
    curved = 0.5 * (shares * (1 - shares) * spread).sum()
    torch.testing.assert_close(book, mean.log_softmax(-1) - curved)
    assert torch.equal(loss(rules="vbp", categorical="points"), loss(rules="exact"))
    logits = site_value("f", mean, spread, propagation_of("diagonal", "vbp"))
    expected = torch.stack([_to_second_order(mean, spread, place) for place in range(3)])
    found = predictive_rule(logits).probabilities(logits)[0]
    torch.testing.assert_close(found, expected / expected.sum())


def _to_second_order(mean, spread, place):
    hessian = torch.autograd.functional.hessian(lambda x: x.softmax(-1)[place], mean)
    return mean.softmax(-1)[place] + 0.5 * (hessian.diagonal() * spread).sum()
