"""A function that looks at its numbers is one operation of a captured program."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from moment_calculus.numerics import opaque

GENERATOR = torch.Generator().manual_seed(0)
X, Y = (torch.rand(3, 2, dtype=torch.float64, generator=GENERATOR) for _ in range(2))


def looking(x, y):
    """One of two functions, by the numbers."""
    return x.sin() * y if float(x.max()) > 0 else x.cos() * y


def with_gradients(x, y):
    arguments = x.detach().requires_grad_(), y.detach().requires_grad_()
    result = opaque.call_as_operation(looking, 0, *arguments)
    return [result.detach(), *torch.autograd.grad(result.exp().sum(), arguments)]


def expected(x, y):
    arguments = x.detach().requires_grad_(), y.detach().requires_grad_()
    result = looking(*arguments)
    return [result.detach(), *torch.autograd.grad(result.exp().sum(), arguments)]


@pytest.fixture(scope="module")
def graph():
    return make_fx(with_gradients)(X, Y)


@pytest.mark.parametrize("sign", [1, -1])
def test_it_looks_when_the_program_runs(graph, sign):
    torch.testing.assert_close(graph(sign * X, Y), expected(sign * X, Y), rtol=0.0, atol=0.0)
    torch.testing.assert_close(with_gradients(sign * X, Y), expected(sign * X, Y))


def test_a_graph_has_two_operations_for_it(graph):
    names = [
        str(node.target) for node in graph.graph.nodes if "moment_calculus" in str(node.target)
    ]
    assert names == ["moment_calculus.forward.default", "moment_calculus.backward.default"]
    alone = make_fx(lambda x, y: opaque.call_as_operation(looking, 0, x, y))(X, Y)
    torch.testing.assert_close(alone(-X, Y), looking(-X, Y))
    assert any("moment_calculus.call" in str(node.target) for node in alone.graph.nodes)


def test_a_gradient_that_was_not_asked_for_is_forgotten():
    arguments = X.clone().requires_grad_(), Y.clone().requires_grad_()
    before = len(opaque._saved_graphs)
    result = opaque.call_as_operation(looking, 0, *arguments)
    assert len(opaque._saved_graphs) == before + 1
    del result
    assert len(opaque._saved_graphs) == before


def test_a_gradient_may_be_asked_for_twice():
    arguments = X.clone().requires_grad_(), Y.clone().requires_grad_()
    total = opaque.call_as_operation(looking, 0, *arguments).exp().sum()
    for _ in range(2):
        found = torch.autograd.grad(total, arguments, retain_graph=True)
        torch.testing.assert_close([*found], expected(X, Y)[1:], rtol=0.0, atol=0.0)


def test_only_watched_programs_on_a_cpu_are_captured():
    seen = []
    make_fx(lambda x: seen.append(opaque.is_captured(x)) or x + 1)(X)
    torch.func.vmap(lambda x: seen.append(opaque.is_captured(x)) or x + 1)(X)
    assert [*seen, opaque.is_captured(X), opaque.is_captured(X.numpy())] == [True, *3 * [False]]


def added(x, y):
    """Its gradients are the slope itself, and a view of it."""
    return x + y.T


def test_results_have_memory_and_layout_of_their_own():
    arguments = X.T.detach().requires_grad_(), Y.clone().requires_grad_()
    slope = torch.ones(2, 3, dtype=torch.float64)
    result = opaque.call_as_operation(added, 0, *arguments)
    gradients = torch.autograd.grad(result, arguments, slope)
    for array in (result, *gradients):
        assert array.is_contiguous()
        assert array.data_ptr() not in {part.data_ptr() for part in (slope, *arguments)}
    assert [tuple(part.shape) for part in gradients] == [(2, 3), (3, 2)]
