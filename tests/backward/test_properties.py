"""What the covariance of every program must be: steady, differentiable, the same in both hosts."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from moment_calculus.functions.families.logistic import Sigmoid
from moment_calculus.functions.families.relu import ReLU
from moment_calculus.functions.table import Tanh, activation
from moment_calculus.operations.elementwise.unary import apply, site_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.backward import asked
from moment_calculus.values.propagation import RuleBook
from tests.backward.programs import CASES
from tests.checks import general
from tests.checks.jaxprs import by_numpy


def check_hosts(case):
    """Torch and JAX agree on values and gradients."""
    arrays = case.example()

    def combine(*inputs):
        outputs = case.outputs(*inputs)
        return general.combined(outputs), outputs

    with jax.enable_x64(True):
        inputs = tuple(map(jax.numpy.asarray, arrays))
        run = jax.grad(combine, argnums=tuple(range(len(inputs))), has_aux=True)
        gradients, outputs = by_numpy(run)(*inputs)
    for mode, expected in case.outputs(*general.to_torch(arrays)).items():
        size = float(expected.abs().max())
        assert_allclose(outputs[mode], expected, 1e-10, 1e-12 * size, err_msg=mode)
    ours = general.torch_gradients(case, arrays)
    size = max(np.abs(gradient).max(initial=0.0) for gradient in ours)
    for one, other in zip(ours, gradients, strict=True):
        assert_allclose(other, one, rtol=1e-10, atol=1e-11 * size)


def check_second_derivatives(case):
    """The derivative of the gradient along a direction, against central differences."""
    arrays, generator = general.leaves_of(case.example()), torch.Generator().manual_seed(3)
    way = [torch.randn(a.shape, generator=generator, dtype=torch.float64) for a in arrays]

    def slope(by, create_graph=False):
        moved = [a + by * d for a, d in zip(arrays, way, strict=True)]
        total = general.combined(case.outputs(*moved))
        slopes = torch.autograd.grad(total, moved, create_graph=create_graph, allow_unused=True)
        pairs = [(g, d) for g, d in zip(slopes, way, strict=True) if g is not None]
        return sum((g * d).sum() for g, d in pairs) + 0 * by

    by = torch.zeros((), dtype=torch.float64, requires_grad=True)
    second = torch.autograd.grad(slope(by, create_graph=True), by)[0]
    h = 1e-4
    difference = (8 * (slope(h) - slope(-h)) - slope(2 * h) + slope(-2 * h)) / (12 * h)
    torch.testing.assert_close(second, difference.detach(), rtol=1e-6, atol=1e-7)


def check_batches_of_programs(case):
    """vmap gives what a loop gives, in torch."""
    arrays = general.to_torch(case.example())
    batches = [torch.stack([array, 0.5 * array + 0.1]) for array in arrays]
    together = torch.func.vmap(case.outputs)(*batches)
    for place in range(2):
        for mode, alone in case.outputs(*(batch[place] for batch in batches)).items():
            torch.testing.assert_close(together[mode][place], alone, rtol=1e-10, atol=1e-12)


def check_positive(case, rules="exact"):
    """No variance is negative; every covariance is positive semidefinite."""
    for by in (0.01, 1.0, 30.0):
        outputs = case.outputs(*general.to_torch(case.shrunk(case.example(), by)), rules=rules)
        assert (outputs["variance"] >= 0).all()
        for matrices in (outputs[mode] for mode in ("joint", "covariance") if mode in outputs):
            values = torch.linalg.eigvalsh(matrices)
            assert (values >= -1e-12 * values.abs().max()).all()


def check_extremes(case):
    """In single precision nothing is NaN or infinite, nor a gradient, at any size of the spread."""
    for by in (0.0, 1e-10, 1e-4, 1e3):
        leaves = general.leaves_of(case.shrunk(case.example(), by), torch.float32)
        outputs = case.outputs(*leaves)
        for mode, array in outputs.items():
            assert torch.isfinite(array).all(), (mode, by)
        for gradient in general.gradients_by(leaves, general.combined(outputs)):
            assert np.isfinite(gradient).all(), by


CHECKS = [
    check_hosts,
    check_positive,
    check_extremes,
    general.check_zero_variance,
    general.check_gradients,
    check_second_derivatives,
    check_batches_of_programs,
    general.check_float32,
]


@pytest.mark.parametrize(("check", "case"), general.meetings(CHECKS, CASES))
def test_property(check, case):
    check(case)


# -------------------------------------------------------------------------------------------------
# Rules whose variance is less than what their gain passes on


@dataclass(frozen=True)
class Understated(RuleBook):
    """Gives every function half of its variance."""

    def ruled(self, function):
        changed = {ReLU: HalfReLU, Sigmoid: HalfSigmoid, Tanh: HalfTanh}
        return changed.get(type(function), lambda: function)()


class Half:
    def moments(self, mean, variance):
        centre, spread = super().moments(mean, variance)
        return centre, 0.5 * spread

    def gain(self, mean, variance):
        return super().gain(mean, variance)

    def hermite(self, mean, variance, order):
        return super().hermite(mean, variance, order)


class HalfReLU(Half, ReLU):
    """Of relu."""


class HalfSigmoid(Half, Sigmoid):
    """Of the logistic function."""


class HalfTanh(Half, Tanh):
    """Of tanh."""


BOOKS = ["dvi", "first_order", Understated("understated")]
NETWORKS = [case for case in CASES if not case.linear]


@pytest.mark.parametrize("case", NETWORKS, ids=lambda case: case.name)
@pytest.mark.parametrize("rules", BOOKS, ids=lambda book: getattr(book, "name", book))
def test_books_give_positive_variances(rules, case):
    check_positive(case, rules)


def check_the_gain_shrinks(name):
    """To as much as the book's variance allows; nothing is added beyond it."""
    mean, variance = torch.tensor([0.3, -1.0, 2.0]).double(), torch.tensor([0.5, 2.0, 1.0]).double()
    x = site_value("x", mean, variance, propagation_of("backward", BOOKS[-1]))
    y = apply(activation(name), x).gaussian()
    expected = 0.5 * activation(name).moments(mean, variance)[1]
    gain = activation(name).gain(mean, variance)
    assert (gain**2 * variance > expected).all()
    joint = asked.joint([y, x])
    torch.testing.assert_close(joint[:, 0, 0], expected, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(joint[:, 0, 1], (expected * variance).sqrt(), rtol=1e-12, atol=0.0)


def test_the_gain_shrinks():
    check_the_gain_shrinks("tanh")
