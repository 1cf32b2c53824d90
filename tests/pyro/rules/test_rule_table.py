"""The rule table as a whole: every rule is reached, and what torch rejects stays rejected."""

import pytest
import torch
import torch.nn.functional as F

from pyro_moments import MomentTensor, UnsupportedMoments, propagate
from pyro_moments.rules.shapes.conversion import CERTAIN
from pyro_moments.rules.table import RULES, named
from tests.pyro.rules.test_rules import NOISY, x

INDEX = torch.tensor([[0, 1], [1, 0]])
ARGUMENTS = [(), (x,), (2.0,), (-1,), (0, 1), (2, 2), ((2, 2),), (x[0],), (0, 0, 1), (0, INDEX)]
ARGUMENTS += [(0, INDEX[0]), (x, x), (0, (1, 2)), (x > 0, 1.0), (x, 0.5), (x[0], x[0].abs())]
ARGUMENTS += [((2,), None, None), (1, x[0]), (x, None), ((2, 2), 1.0), (1, 0), ((1, 1), 0)]
SEQUENCES = ("cat", "concat", "concatenate", "stack", "hstack")
FIRST = {  # functions whose first argument is not the random one
    "einsum": lambda h, rest: ("ij,jk->ik", h, *rest),
    "embedding": lambda h, rest: (INDEX, h),
    "scaled_dot_product_attention": lambda h, rest: (h, h, h),
}


@pytest.mark.parametrize("function", RULES, ids=lambda f: getattr(f, "__qualname__", f.__name__))
def test_every_rule_is_reached_and_never_returns_the_mean(function):
    """A result is random, certain by construction, or a refusal: never a plain tensor of means."""
    outcomes = []

    def call(h):
        for arguments in ARGUMENTS:
            operands = operands_of(function, h, arguments)
            try:
                outcomes.append(
                    MomentTensor.__torch_function__(function, (MomentTensor,), operands)
                )
            except UnsupportedMoments as refusal:
                outcomes.append(refusal)
            except Exception:  # arguments of another kind than the function's: torch's own error
                continue
        return h

    propagate(call, NOISY)
    assert outcomes
    certain = {*CERTAIN, *named("isfinite", "isnan", "isinf")}
    for outcome in outcomes:
        parts = outcome if isinstance(outcome, tuple | list) else (outcome,)
        random = any(isinstance(part, MomentTensor) for part in parts)
        assert random or isinstance(outcome, UnsupportedMoments) or function in certain


def operands_of(function, h, arguments):
    first = [h * 1.0] if function.__name__ in SEQUENCES else h * 1.0
    return FIRST.get(function.__name__, lambda h, rest: (h, *rest))(first, arguments)


def is_of_numbers(function, arguments):
    """Whether torch takes the arguments, and gives numbers that have a mean."""
    try:
        found = function(*operands_of(function, NOISY.mean, arguments))
    except Exception:  # arguments of another kind than the function's
        return False
    parts = found if isinstance(found, tuple | list) else (found,)
    return all(isinstance(part, torch.Tensor) and part.is_floating_point() for part in parts)


def test_every_rule_is_for_what_also_runs_by_draws():
    ran = 0
    for function in RULES:
        for arguments in ARGUMENTS:
            call = lambda h: function(*operands_of(function, h, arguments))  # noqa: B023, E731
            if not is_of_numbers(function, arguments):
                continue
            try:
                propagate(call, NOISY)
            except UnsupportedMoments:
                continue
            propagate(call, NOISY, propagation="sampled", num_particles=2)
            ran += 1
            break
    assert ran > 300


TORCH_ERRORS = {
    "sum": lambda h: h.sum(2),
    "sum_twice": lambda h: h.sum((0, 0)),
    "mean": lambda h: h.mean(dim=-3),
    "cumsum": lambda h: h.cumsum(2),
    "diff": lambda h: h.diff(dim=2),
    "permute": lambda h: h.permute(0, 0),
    "transpose": lambda h: h.transpose(0, 2),
    "movedim": lambda h: h.movedim(0, 5),
    "split": lambda h: h.split([1, 3], -1),
    "chunk": lambda h: h.chunk(2, 3),
    "unbind": lambda h: h.unbind(2),
    "narrow": lambda h: h.narrow(-1, 1, 2),
    "select": lambda h: h.select(0, 2),
    "stack": lambda h: torch.stack([h, h[0]]),
    "cat": lambda h: torch.cat([h, h[:, :1]]),
    "gather": lambda h: h.gather(0, INDEX[0]),
    "matmul": lambda h: h @ torch.ones(3, 2),
    "mm": lambda h: torch.mm(h, x[0]),
    "bmm": lambda h: torch.bmm(h, x),
    "einsum": lambda h: torch.einsum("ij,jk->i", h, torch.ones(3, 2)),
    "tensordot": lambda h: torch.tensordot(h, torch.ones(3, 2), 1),
    "layer_norm": lambda h: F.layer_norm(h, (3,)),
    "group_norm": lambda h: F.group_norm(h, 3),
    "softmax": lambda h: h.softmax(2),
    "unflatten": lambda h: h.unflatten(1, (3, 1)),
    "squeeze": lambda h: h.squeeze(5),
    "reshape": lambda h: h.reshape(3),
    "gelu": lambda h: F.gelu(h, approximate="erf"),
    "clamp": torch.clamp,
}


@pytest.mark.parametrize("name", TORCH_ERRORS)
def test_what_torch_rejects_raises_its_own_error(name):
    function = TORCH_ERRORS[name]
    with pytest.raises((IndexError, RuntimeError, ValueError)) as plain:
        function(NOISY.mean)
    with pytest.raises(plain.type) as ours:
        propagate(function, NOISY)
    assert "remedy" not in str(ours.value)  # torch's own words, of the CPU or of shapes alone


@pytest.mark.parametrize(
    ("function", "keeps"),
    [
        (torch.sum, True),
        (torch.mean, True),
        (torch.prod, True),
        (torch.logsumexp, True),
        (torch.cumsum, False),
        (torch.softmax, False),
    ],
)
def test_the_names_of_numpy_are_those_of_torch(function, keeps):
    """As in torch itself, which takes ``axis`` and ``keepdims`` too."""
    ours = {"dim": -1} | ({"keepdim": True} if keeps else {})
    theirs = {"axis": -1} | ({"keepdims": True} if keeps else {})
    assert function(x, **theirs).shape == function(x, **ours).shape
    expected = propagate(lambda h: function(h, **ours), NOISY, covariance="full")
    actual = propagate(lambda h: function(h, **theirs), NOISY, covariance="full")
    torch.testing.assert_close(actual.mean, expected.mean)
    torch.testing.assert_close(actual.variance, expected.variance)
