"""Arrays in pieces, and choices that read arrays: neither shows in any number."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.families.elementary import capped_exp, infinite_where_capped
from moment_calculus.functions.families.relu import dvi_rectifier, dvi_step
from moment_calculus.numerics import derivatives
from moment_calculus.numerics.execution import known_all_false
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
    arrays = [array.requires_grad_() for array in pairs(SIZE + 1)]
    assert torch.autograd.gradgradcheck(rectifier_covariance, arrays)
    assert torch.autograd.gradgradcheck(dvi_rectifier, arrays)
    rows = pairs(5, 20)
    mapped = torch.func.vmap(rectifier_covariance)(*rows)
    torch.testing.assert_close(mapped, rectifier_covariance(*rows))


def test_plain_arrays_are_looked_at():
    for convert in (np.asarray, torch.as_tensor):
        assert known_all_false(convert([False, False]))
        assert not known_all_false(convert([False, True]))


def test_nobody_looks_at_what_is_traced():
    seen = []
    torch.func.vmap(lambda x: (seen.append(known_all_false(x > 1)), x)[1])(torch.zeros(3))
    assert seen == [False]
    assert not known_all_false(jnp.asarray([False]))


@pytest.mark.parametrize("function", [capped_exp, lambda x: infinite_where_capped(capped_exp(x))])
def test_an_exponential_that_is_held_changes_no_other(function):
    """With and without the choice: values and gradients."""
    x = torch.tensor([-200.0, -1.0, 0.0, 3.0, float("nan")], requires_grad=True)
    held = torch.cat([x, torch.tensor([500.0])])
    plain, chosen = function(x), function(held)
    torch.testing.assert_close(chosen[:-1], plain, rtol=0, atol=0, equal_nan=True)
    slopes = [torch.autograd.grad(y[:4].sum(), x)[0] for y in (plain, chosen)]
    torch.testing.assert_close(*slopes, rtol=0, atol=0, equal_nan=True)
    np.testing.assert_array_equal(plain[:4].detach(), x[:4].detach().exp())
