"""Random sequences of shape operations, deep programs, and gradients where variances vanish."""

import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import linear

from pyro_moments import Moments
from tests.cases import programs
from tests.pyro.rules.test_programs import ACTIVATIONS, EXACT, MODES, run

OPERATIONS = "reshape squeeze unsqueeze expand index swap none list".split()


def _factorisations(count: int) -> list[tuple[int, ...]]:
    shapes = [(count,), (1, count), (count, 1)]
    divisors = [n for n in range(2, count) if count % n == 0]
    return shapes + [(n, count // n) for n in divisors] + [(n, 1, count // n) for n in divisors]


@st.composite
def steps(draw, shape: tuple[int, ...]):
    """A random shape operation, as a function of a tensor."""
    rank = len(shape)
    kind = draw(st.sampled_from(OPERATIONS))
    if kind == "reshape":
        target = draw(st.sampled_from(_factorisations(math.prod(shape))))
        return lambda h: h.reshape(target)
    if kind == "unsqueeze":
        place = draw(st.integers(-rank - 1, rank))
        return lambda h: h.unsqueeze(place)
    if kind == "expand":
        sizes = [draw(st.sampled_from([n, 2])) if n == 1 else n for n in shape]
        return lambda h: h.expand(sizes)
    if kind == "swap" and rank > 1:
        return lambda h: h.transpose(-1, -2)
    if kind in ("index", "none", "list"):
        key = draw(_keys(kind, shape))
        return lambda h: h[key]
    return lambda h: h.squeeze()


@st.composite
def _keys(draw, kind: str, shape: tuple[int, ...]):
    if kind == "none" or not shape:
        return draw(st.sampled_from([(None, Ellipsis), (Ellipsis, None), (Ellipsis,)]))
    if kind == "index":
        basic = tuple(draw(_basic(n)) for n in shape[: draw(st.integers(1, len(shape)))])
        return basic if draw(st.booleans()) else (*basic, Ellipsis, None)
    place = draw(st.integers(0, len(shape) - 1))
    chosen = draw(st.lists(st.integers(0, shape[place] - 1), min_size=1, max_size=3))
    before = [draw(st.sampled_from([slice(None), 0])) for _ in range(place)]
    array = draw(st.sampled_from([chosen, torch.tensor(chosen), torch.tensor([chosen])]))
    key = [*before, array]
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), None)
    return tuple(key)


def _basic(size: int):
    return st.one_of(
        st.integers(-size, size - 1),
        st.just(slice(None)),
        st.builds(slice, st.integers(0, size - 1), st.none()),
        st.just(slice(None, None, max(1, size - 1))),
    )


def check_shape_operations(data, mode):
    """Moments move as the array does, a covariance is the true one, or a warning was given; chains
    of functions with certain factors move as well."""
    shape = data.draw(st.sampled_from([(2, 3), (3, 2), (1, 3), (2, 1), (4,), (2, 2, 3), (3, 1, 2)]))
    plain, operations = torch.empty(shape), []
    for _ in range(data.draw(st.integers(1, 4))):
        operations.append(data.draw(steps(tuple(plain.shape))))
        plain = operations[-1](plain)
        if plain.numel() == 0:
            return

    def program(h):
        for operation in operations:
            h = operation(h)
        return h

    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(*shape, shape[-1], generator=generator, dtype=torch.float64)
    moments = Moments(factor[..., 0] + 1, covariance=factor @ factor.mT)
    result, caught = run(program, [moments], mode)
    torch.testing.assert_close(result.mean, program(moments.mean), **EXACT)
    torch.testing.assert_close(result.variance, program(moments.variance), **EXACT)
    chain = lambda h: torch.exp(torch.tanh(h) * factor[..., 0]) * factor[..., -1]  # noqa: E731
    matched, _ = run(chain, [moments], mode)
    moved, _ = run(lambda h: program(chain(h)), [moments], mode)
    torch.testing.assert_close(moved.mean, program(matched.mean), **EXACT)
    torch.testing.assert_close(moved.variance, program(matched.variance), **EXACT)
    if result.covariance is not None and not caught:
        rows = moments.covariance.reshape(-1, *moments.covariance.shape[-2:])
        joint = torch.block_diag(*rows)
        place = program(torch.arange(moments.mean.numel()).reshape(shape))
        expected = joint[place[..., :, None], place[..., None, :]]
        torch.testing.assert_close(result.covariance, expected, **EXACT)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), mode=st.sampled_from(MODES))
def test_shape_operations(data, mode):
    check_shape_operations(data, mode)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), mode=st.sampled_from(MODES))
def test_many_shape_operations(data, mode):
    check_shape_operations(data, mode)


KEPT = {
    "unsqueeze": lambda h: h.unsqueeze(0),
    "leading_axis": lambda h: h.reshape(1, 2, 3),
    "batch": lambda h: h.reshape(2, 1, 3),
    "rows": lambda h: h[1:],
    "columns": lambda h: h[:, 1:],
    "transpose": lambda h: h.mT,
    "expand": lambda h: h.expand(4, 2, 3),
    "one_column": lambda h: h[:, 1],
    "row_of_columns": lambda h: h.mT[0],
    "leaf": lambda h: h,
}
DROPPED = {
    "flatten": lambda h: h.flatten(),
    "split": lambda h: h.reshape(3, 2),
    "mixed_index": lambda h: h[[0, 1], [1, 0]],
    "contracted_batch": lambda h: torch.ones(1, 2, dtype=torch.float64) @ h,
}


@pytest.mark.parametrize("name", [*KEPT, *DROPPED])
def test_a_warning_exactly_when_a_covariance_is_dropped(name):
    factor = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    correlated = Moments(factor[..., 0], covariance=factor @ factor.mT)
    independent = Moments(factor[..., 0], variance=factor[..., 1] ** 2)
    program = (KEPT | DROPPED)[name]
    assert len(run(program, [correlated], "full")[1]) == (name in DROPPED)
    if name != "mixed_index":  # which might repeat a component
        assert not run(program, [independent], "full")[1]


def _residual_net(blocks: int):
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(blocks, 8, 8, generator=generator) / 8

    def network(h):
        first = h
        for weight in weights:
            h = h + torch.relu(linear(h, weight))
        return (h + first)[..., :1] - h[..., 1:2]

    return network


@pytest.mark.parametrize("mode", MODES)
def test_deep_residual_nets_take_linear_time(mode):
    h = Moments(torch.zeros(4, 8), variance=torch.ones(4, 8))
    seconds = {}
    for blocks in (10, 10, 40):  # the first run warms up
        network, start = _residual_net(blocks), time.perf_counter()
        result, caught = run(network, [h], mode)
        seconds[blocks] = time.perf_counter() - start
        assert not caught
        assert (result.variance > 0).all()
    assert seconds[40] < 12 * seconds[10] + 0.2


@pytest.mark.parametrize("mode", MODES)
def test_gated_nets_take_polynomial_time(mode):
    """Products of dependent values look for products that are not among their ancestors."""
    h = Moments(torch.zeros(2, 4), variance=torch.ones(2, 4))
    weights = torch.randn(16, 2, 4, 4, generator=torch.Generator().manual_seed(0)) / 4

    def network(h):
        for gate, update in weights:
            h = h + torch.sigmoid(linear(h, gate)) * linear(h, update)
        return h

    start = time.perf_counter()
    assert torch.isfinite(run(network, [h], mode)[0].variance).all()
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("mode", MODES)
def test_variances_stay_positive(mode):
    """Nearly equal components: diagonal mode leaves their correlation out of the variances."""
    row = torch.ones(1, 3, dtype=torch.float64)
    h = Moments(row[0], variance=0.001 * row[0])

    def program(h):
        common = linear(linear(h, row), row.T)
        return common - linear(common, row.T @ row), common * linear(common, -row.T @ row)

    for moments in run(program, [h], mode)[0]:
        assert (moments.variance >= -1e-15).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_stay_finite_without_randomness(activation, mode):
    f = ACTIVATIONS[activation]
    mean = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    variance = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)

    def program(h):
        h = h + f(linear(h, programs.A))
        return h * h - h[..., :1] * f(h)

    result, _ = run(program, [Moments(mean, variance=variance)], mode)
    torch.testing.assert_close(result.mean, program(mean), **EXACT)
    gradients = torch.autograd.grad((result.mean + result.variance).sum(), (mean, variance))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
