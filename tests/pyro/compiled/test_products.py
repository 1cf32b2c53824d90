"""Small matrix products become sums in a captured program."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from pyro_moments.compiled.compilers import LIMIT, products_of, with_sums

GENERATOR = torch.Generator().manual_seed(0)
A, B, SHIFT = (torch.randn(s, generator=GENERATOR) for s in ((5, 3, 4), (5, 4, 2), (2,)))
SMALL = {
    "mm": lambda a, b, c: [a[0].exp() @ b[0]],
    "transposed": lambda a, b, c: [b[0].T @ a[0].T],
    "shifted": lambda a, b, c: [torch.addmm(c, a[0], b[0])],
    "batch": lambda a, b, c: [torch.bmm(a, b)],
    "shifted batch": lambda a, b, c: [torch.baddbmm(c, a, b)],
    "one after the other": lambda a, b, c: [(a[0] @ b[0]) @ b[1].T],
}


@pytest.mark.parametrize("function", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_small_products_become_sums(function, dtype, error):
    inputs = A.to(dtype), B.to(dtype), SHIFT.to(dtype)
    graph = make_fx(function)(*inputs)
    count = len(list(products_of(graph)))
    rewritten = with_sums(graph)
    assert count >= 1
    assert len(list(products_of(graph))) == count
    assert not list(products_of(rewritten))
    torch.testing.assert_close(rewritten(*inputs), function(*inputs), rtol=error, atol=error)


@pytest.mark.parametrize(
    ("function", "inputs"),
    {
        "large": (lambda a, b: [a @ b], (torch.ones(LIMIT // 8, 4), torch.ones(4, 3))),
        "integers": (lambda a, b: [a @ b], (torch.ones(3, 4).int(), torch.ones(4, 2).int())),
        "low precision": (lambda a, b: [a @ b], (A[0].bfloat16(), B[0].bfloat16())),
        "scaled": (lambda a, b: [torch.addmm(SHIFT, a, b, alpha=2.0)], (A[0], B[0])),
    }.values(),
)
def test_other_products_stay(function, inputs):
    graph = with_sums(make_fx(function)(*inputs))
    assert len(list(products_of(graph))) == 1
    torch.testing.assert_close(graph(*inputs), function(*inputs))
