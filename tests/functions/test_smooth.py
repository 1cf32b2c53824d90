"""The universal rule behind named functions: a user's own, large arrays, tracing, derivatives."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.fx.experimental.proxy_tensor import make_fx

from moment_calculus.functions.integrated import CHUNK
from moment_calculus.functions.table import PiecewiseLinear, Smooth, activation
from moment_calculus.numerics.arrays import namespace
from moment_calculus.numerics.quadrature import nodes
from tests.oracles import quadrature as oracles


@dataclass(frozen=True)
class Bump(Smooth):
    """What a user writes: f, f′ and where it changes."""

    name = "bump"
    knots = (2.0,)

    def __call__(self, x):
        return namespace(x).exp(-((x - 2) ** 2))

    def derivative(self, x):
        return -2 * (x - 2) * self(x)


def test_a_function_of_the_user_needs_its_derivative_and_knots_only():
    for scale in (1e-3, 0.6, 20.0):
        mean, variance = scale * np.array([-2.0, 0.3, 3.0]), np.full(3, scale * scale)
        centre, spread = Bump().moments(mean, variance)
        for i, mu in enumerate(mean):
            true = oracles.activation_moments(Bump(), mu, scale, (2.0,))
            assert_allclose(centre[i], true["mean"], rtol=1e-8)
            assert_allclose(spread[i], true["variance"], rtol=1e-7)


@pytest.mark.parametrize("made", [Bump(), activation("silu")], ids=lambda made: made.name)
def test_large_arrays_are_integrated_in_pieces(made):
    mean = torch.linspace(-3, 3, 2 * CHUNK + 7)[:, None].requires_grad_()
    variance = torch.linspace(0.1, 4, 2 * CHUNK + 7)[:, None]
    whole = made.moments(mean, variance)
    assert whole[0].shape == mean.shape
    some = [0, CHUNK - 1, CHUNK, 2 * CHUNK + 6]
    for ours, alone in zip(whole, made.moments(mean[some], variance[some]), strict=True):
        torch.testing.assert_close(ours[some], alone)
    (gradient,) = torch.autograd.grad(whole[0].sum(), mean)
    torch.testing.assert_close(gradient, made.gain(mean, variance), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gelu", "silu", "softsign", "hardtanh", "elu", "erf", "power"])
def test_moments_can_be_traced(name):
    made = activation(name)

    def program(mean, variance):
        moments = made.moments(mean, variance)
        return torch.autograd.grad(sum(part.sum() for part in moments), (mean, variance))

    arguments = torch.randn(4).requires_grad_(), (torch.rand(4) + 0.1).requires_grad_()
    traced = make_fx(program, tracing_mode="fake")(*arguments)
    torch.testing.assert_close(traced(*arguments), program(*arguments))


NAMES = ["softsign", "mish", "gelu", "gelu_tanh", "elu", "hardtanh", "silu", "softplus", "tanh"]


@pytest.mark.parametrize("name", NAMES)
def test_gains_and_coefficients_have_derivatives(name):
    made = activation(name)
    mean, variance = (
        torch.tensor(part, dtype=torch.float64, requires_grad=True)
        for part in ([0.3, -1.2, 1.1], [0.5, 1.7, 0.2])
    )
    assert torch.autograd.gradcheck(made.gain, (mean, variance), atol=1e-7)
    assert torch.autograd.gradcheck(
        lambda *arrays: tuple(made.hermite(*arrays, 3)), (mean, variance), atol=1e-7
    )
    assert torch.autograd.gradgradcheck(made.moments, (mean, variance), atol=1e-6)


@pytest.mark.parametrize("name", ["relu", "silu", "softplus", "mish", "tanh", "sigmoid"])
def test_gains_have_their_derivatives_in_single_precision(name):
    made = activation(name)
    mean, scale = np.tile([0.3, -1.2, 1.1, 0.4, -0.3], 2), np.repeat([0.02, 1.5], 5)
    exact = [torch.tensor(part, requires_grad=True) for part in (mean, scale**2)]
    true = torch.autograd.grad(made.gain(*exact).sum(), exact)
    with jax.enable_x64(False):
        arrays = [jax.numpy.asarray(part, np.float32) for part in (mean, scale**2)]
        found = jax.grad(lambda *parts: made.gain(*parts).sum(), (0, 1))(*arrays)
    assert_allclose(found[0], true[0], rtol=1e-3, atol=1e-4)
    assert_allclose(found[1][5:], true[1][5:], rtol=1e-3, atol=1e-4)


def test_nodes_of_a_knot_that_is_nowhere_are_finite():
    mean, variance = np.array([0.3, -2.0]), np.array([0.5, 4.0])
    points, weights = nodes(mean, variance, (0.0, np.array([np.nan, np.inf]), (0.5, 0.1)))
    assert np.isfinite(points).all()
    assert_allclose(weights.sum(0), 1.0, rtol=1e-12)
    assert_allclose((weights * points**2).sum(0), mean**2 + variance, rtol=1e-10)


@pytest.mark.parametrize(
    "parts",
    [((1.0, 0.0), (0.0, 1.0, 0.0)), ((0.0,), (1.0,)), ((0.0,), (1.0, 0.0), 0.0, (1.0, 1.0))],
)
def test_pieces_that_do_not_fit_are_refused(parts):
    with pytest.raises(ValueError, match="have to ascend"):
        PiecewiseLinear(*parts)


def test_an_unknown_activation_lists_the_candidates():
    with pytest.raises(ValueError, match="'swish' is not one of abs, celu, clamp"):
        activation("swish")
