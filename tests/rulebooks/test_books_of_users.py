"""Books of users: rules of their own, single rules replaced, what they leave out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import numpyro_moments
import pyro_moments
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.base import Delegating
from moment_calculus.functions.derived import Derived, left_out
from moment_calculus.functions.families.logistic import Sigmoid
from moment_calculus.functions.families.relu import ReLU
from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import expit
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.propagation import EXACT, RuleBook
from pyro_moments import Moments, propagate

MEAN = torch.tensor([0.4, -0.7, 1.1], dtype=torch.float64)
ROOT = torch.tensor([[0.5, 0.0, 0.0], [0.3, 0.6, 0.0], [-0.2, 0.4, 0.3]], dtype=torch.float64)
WEIGHT = torch.tensor([[0.5, -1.0, 0.3], [1.2, 0.4, -0.6]], dtype=torch.float64)
SAMPLES = 400_000


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
    halved = propagate(lambda x: x + torch.tanh(x), inputs, rules=Halves("halves"))
    plain = propagate(lambda x: x + torch.tanh(x) / 2, inputs)
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
        (numpyro_moments, "covariance"),
        (numpyro_moments, "cross-covariance"),
    ],
)
def test_what_a_book_leaves_out_is_refused_or_derived(package, program, kind):
    host, book = package is pyro_moments, kind("mistakes", derive=False)
    relu = F.relu if host else jax.nn.relu
    array = torch.tensor if host else jnp.array
    inputs = package.Moments(array([-0.05, -0.05]), covariance=array([[1.0, 0.95], [0.95, 1.0]]))
    function = {"covariance": relu, "cross-covariance": lambda x: x[:1] + relu(x[1:])}[program]
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
