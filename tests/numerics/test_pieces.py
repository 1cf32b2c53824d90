"""Large arrays are computed in pieces, which must not show in any number."""

from __future__ import annotations

import pytest
import torch

from moment_calculus.functions.families.relu import dvi_rectifier, dvi_step
from moment_calculus.numerics import derivatives
from moment_calculus.numerics.normal import rectifier_covariance, tail_moments

SIZE = 7


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(derivatives, "PIECE", SIZE)


def whole(function, *arrays):
    """The same in one piece."""
    derivatives.PIECE = 1 << 40
    try:
        return function(*arrays)
    finally:
        derivatives.PIECE = SIZE


def pairs(*shape):
    generator = torch.Generator().manual_seed(0)
    a, b, rho = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    return a, b, torch.tanh(rho)


def with_gradients(arrays, function=rectifier_covariance):
    arrays = [array.detach().requires_grad_() for array in arrays]
    weights = torch.arange(arrays[0].numel(), dtype=torch.float64).reshape(arrays[0].shape)
    result = function(*arrays)
    return result, *torch.autograd.grad((weights * result).sum(), arrays)


@pytest.mark.parametrize("function", [rectifier_covariance, dvi_rectifier, dvi_step])
@pytest.mark.parametrize("shape", [(15,), (3, 7), (4, 5, 6)])
def test_pieces_equal_the_whole(shape, function):
    arrays = pairs(*shape)
    for piecewise, at_once in zip(
        with_gradients(arrays, function), whole(with_gradients, arrays, function), strict=True
    ):
        assert piecewise.shape == shape
        torch.testing.assert_close(piecewise, at_once, rtol=1e-14, atol=1e-16)


def test_the_pieces_are_small(monkeypatch):
    """The function itself never sees more than a piece."""
    seen = []

    def cube(x):
        seen.append(x.numel())
        return x**3

    function = derivatives.elementwise(cube, lambda x: ((3 * x**2,),))
    x = torch.linspace(-1, 1, 50, dtype=torch.float64, requires_grad=True)
    function(x).sum().backward()
    assert max(seen) == SIZE
    torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_layouts_and_broadcasting_are_kept():
    a, b, rho = pairs(6, 8)
    for arrays in ((a.T, b.T, rho.T), (a, b[:1], rho), (a, b, rho[:, :1])):
        torch.testing.assert_close(
            rectifier_covariance(*arrays), whole(rectifier_covariance, *arrays)
        )


def test_several_results_and_unused_gradients():
    t = pairs(40)[0].abs().requires_grad_()
    zeroth, _, second = tail_moments(t)
    found = torch.autograd.grad(second.sum(), t)[0]
    torch.testing.assert_close(found, -2 * tail_moments(t)[1])
    torch.testing.assert_close(zeroth, torch.special.ndtr(-t))


def test_second_derivatives_and_vmap():
    arrays = [array.requires_grad_() for array in pairs(20)]
    assert torch.autograd.gradgradcheck(rectifier_covariance, arrays)
    assert torch.autograd.gradgradcheck(dvi_rectifier, arrays)
    rows = pairs(5, 20)
    mapped = torch.func.vmap(rectifier_covariance)(*rows)
    torch.testing.assert_close(mapped, rectifier_covariance(*rows))
