"""The torch front end: every rule works or refuses, and nothing is evaluated at the mean unsaid."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pyro_moments import Moments, MomentTensor, UnsupportedMoments, propagate

x = torch.tensor([[0.4, -1.2], [0.9, 0.3]])
NOISY = Moments(torch.tensor([[1.0, -2.0], [0.5, 3.0]]), variance=torch.full((2, 2), 0.5))


def samples(function, moments: Moments, count: int = 40_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of a plain function, by Monte Carlo."""
    z = torch.randn(count, *moments.mean.shape)
    drawn = torch.vmap(function)(moments.mean + moments.variance.sqrt() * z)
    return drawn.mean(0), drawn.var(0)


def check(function, plain=None) -> None:
    """Compare with draws of the function, or of a plain one that does the same."""
    result = propagate(function, NOISY, covariance="full")
    mean, variance = samples(plain or function, NOISY)
    torch.testing.assert_close(result.mean, mean, rtol=0.05, atol=0.05)
    torch.testing.assert_close(result.variance, variance, rtol=0.1, atol=0.05)


# ---------------------------------------------------------------------------------------------
# What works

layer = nn.Linear(2, 2)
WORKS = {
    "add": lambda h: torch.add(h, x, alpha=2),
    "add_method": lambda h: h.add(h, alpha=0.5),
    "radd": lambda h: 1 + h,
    "sub": lambda h: torch.sub(h, h, alpha=0.5),
    "subtract": lambda h: h.subtract(x),
    "rsub": lambda h: 1 - h,
    "rsub_tensor": lambda h: x - h,
    "torch_rsub": lambda h: torch.rsub(h, x, alpha=2),
    "mul": lambda h: h * h,
    "rmul": lambda h: x * h,
    "multiply": lambda h: torch.multiply(input=h, other=x),
    "div": lambda h: torch.div(h, 2.0),
    "truediv": lambda h: h / (1 + x * x),
    "neg": lambda h: +torch.neg(h.negative()) - (-h),
    "numpy_number": lambda h: np.float64(2.0) * h if isinstance(h, MomentTensor) else 2.0 * h,
    "matmul": lambda h: h @ x,
    "rmatmul": lambda h: x[:1] @ h[:, :1],
    "mm": lambda h: torch.mm(h, x),
    "mv": lambda h: h.mv(x[0]),
    "dot": lambda h: torch.dot(h[0], x[0]),
    "f_linear": lambda h: F.linear(h, x, x[0]),
    "vector_weight": lambda h: F.linear(h, x[0]) if isinstance(h, MomentTensor) else h @ x[0],
    "relu": lambda h: torch.relu(input=h),
    "f_relu": lambda h: F.relu(h) + h.relu(),
    "leaky_relu": lambda h: F.leaky_relu(h, 0.2),
    "heaviside": lambda h: torch.heaviside(h, torch.tensor(0.5)),
    "sigmoid": lambda h: h.sigmoid() + torch.sigmoid(h) + F.sigmoid(h),
    "tanh": lambda h: h.tanh() - F.tanh(h) + torch.tanh(h),
    "exp": lambda h: torch.exp(0.5 * h) * x + 1,
    "reshape": lambda h: h.reshape((4,)),
    "view": lambda h: h.view(2, -1, 1),
    "view_as": lambda h: h.view_as(x[None]),
    "reshape_as": lambda h: h.reshape_as(x.reshape(4)),
    "flatten": lambda h: torch.flatten(h[None], 0, 1),
    "squeeze": lambda h: h[None, :, None].squeeze(0).squeeze(),
    "squeeze_dims": lambda h: h[None, :, None].squeeze((0, 2)),
    "unsqueeze": lambda h: torch.unsqueeze(h, dim=-1),
    "expand": lambda h: h.expand(3, -1, -1),
    "expand_as": lambda h: h.expand_as(torch.zeros(3, 2, 2)),
    "broadcast_to": lambda h: torch.broadcast_to(h, (3, 2, 2)),
    "broadcast_tensors": lambda h: torch.broadcast_tensors(h, torch.zeros(3, 1, 1))[0],
    "transposes": lambda h: h.T.t().mT.transpose(0, 1).swapaxes(-1, -2).transpose(0, 0),
    "cat": lambda h: torch.cat((h, x, h), dim=-1),
    "concat": lambda h: torch.concat([h, x]),
    "getitem": lambda h: h[None, ..., 1:] * 2,
    "unbind": lambda h: h.unbind(-1)[0],
    "clone": lambda h: h.clone() * h.contiguous(),
    "logsumexp_of_other_logits": lambda h: 2 * h - torch.logsumexp(0.3 * h, -1, keepdim=True),
    "share_of_logsumexp": lambda h: torch.sub(h, (0.3 * h).logsumexp(-1, True), alpha=0.5),
    "certain_minus_logsumexp": lambda h: x - (0.3 * h).logsumexp(dim=-1, keepdim=True),
    "log_softmax": lambda h: torch.log_softmax(0.5 * h, -1)[..., 0],
    "softmax": lambda h: h.softmax(-1) @ x,
    "softmax_of_columns": lambda h: F.softmax(h.T, dim=0),
    "logsumexp": lambda h: (0.5 * h).logsumexp(-1) + h[:, 0],
    "layer_norm": lambda h: F.layer_norm(torch.cat([h, 2 * x, h @ x], -1), (6,)) * 0.1,
    "maximum": lambda h: torch.maximum(h, x) + torch.minimum(x, h),
    "maximum_of_two": lambda h: torch.maximum(h[:, 0], h[:, 1]) - torch.minimum(h[:, 0], h[:, 1]),
    "module_softmax": nn.Softmax(-1),
    "module_unflatten": nn.Unflatten(1, (2, 1)),
    "module_dropout": nn.Dropout(0.5).eval(),
    "module_batch_norm": nn.BatchNorm1d(2).eval(),
    "module_relu": nn.ReLU(),
    "module_relu_in_place": nn.Sequential(layer, nn.ReLU(inplace=True)),
    "module_leaky_relu": nn.LeakyReLU(0.3),
    "module_tanh": nn.Tanh(),
    "module_sigmoid": nn.Sigmoid(),
    "module_linear": layer,
    "module_flatten": nn.Flatten(0),
    "module_identity": nn.Identity(),
    "module_sequential": nn.Sequential(nn.Flatten(), layer, nn.Identity(), nn.ReLU(), layer),
}


@pytest.mark.parametrize("name", WORKS)
@torch.no_grad()
def test_rule_agrees_with_monte_carlo(name):
    check(WORKS[name])


def _in_place_then_reuse(h):
    h = h * 1.0
    result = F.relu(h, inplace=True)
    return result + h


def _in_place_operators(h):
    h = h * 1.0
    alias = h
    h += 1
    h *= x
    h -= 0.5
    h /= 2.0
    return alias + h


def _in_place_methods(h):
    h = h * 1.0
    torch.relu_(h)
    alias = h.relu_()
    return h - 0.5 * alias


def _in_place_arithmetic(h):
    h = h * 1.0
    alias = h
    h.add_(x, alpha=2).sub_(1.0).mul_(0.5).div_(2.0).neg_()
    h.masked_fill_(x > 0, 1.0).addcmul_(x, x).lerp_(x, 0.5)
    return alias + h


FUNCTIONS = [_in_place_then_reuse, _in_place_operators, _in_place_methods, _in_place_arithmetic]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_in_place_changes_are_seen_by_every_name(function):
    check(function, _functional[function])


_functional = {
    _in_place_then_reuse: lambda h: 2 * torch.relu(h),
    _in_place_operators: lambda h: (h + 1) * x - 0.5,
    _in_place_methods: lambda h: 0.5 * torch.relu(h),
    _in_place_arithmetic: lambda h: torch.where(x > 0, 1.0, -(h + 2 * x - 1) * 0.25) + x * x + x,
}


def test_metadata_and_printing():
    def look(h):
        assert (h.shape, h.dtype, h.device, h.ndim) == (x.shape, x.dtype, x.device, 2)
        assert (len(h), h.numel(), h.size(0), h.dim()) == (2, 4, 2, 2)
        assert h.is_floating_point()
        assert not h.requires_grad
        assert f"{h}" == str(h) == repr(h) == "MomentTensor(shape=(2, 2), sites=['input 0'])"
        assert torch.equal(
            torch.zeros_like(h, dtype=torch.int64), torch.zeros(2, 2, dtype=torch.int64)
        )
        assert h in {h}
        return h

    propagate(look, NOISY)


# ---------------------------------------------------------------------------------------------
# What is refused

REFUSED = {
    "torch.sort": lambda h: torch.sort(h),
    "torch.fft.fft": lambda h: torch.fft.fft(h),
    "torch.linalg.inv": lambda h: torch.linalg.inv(h),
    "torch.where": lambda h: torch.where(h > 0, h, h[0].relu()),
    "numpy": lambda h: h.numpy(),
    "__array__": lambda h: np.asarray(h),
    "item": lambda h: h[0, 0].item(),
    "tolist": lambda h: h.tolist(),
    "__float__": lambda h: float(h[0, 0]),
    "__int__": lambda h: int(h[0, 0]),
    "__bool__": lambda h: bool(h[0, 0]),
    "__index__": lambda h: [1, 2][h[0, 0]],
    "__contains__": lambda h: 1.0 in h,
    "__format__": lambda h: f"{h:.2f}",
    "data": lambda h: h.data,
    "detach": lambda h: h.detach(),
    "type": lambda h: h.type(),
    "data_ptr": lambda h: h.data_ptr(),
    "requires_grad_": lambda h: h.requires_grad_(),
    "backward": lambda h: h.backward(),
    "__deepcopy__": lambda h: copy.deepcopy(h),
    "__reduce_ex__": lambda h: pickle.dumps(h),
    "__setitem__": lambda h: h.__setitem__(0, 1.0),
    "__pow__": lambda h: h**0.5,
    "__rpow__": lambda h: (-2) ** h,
    "__mod__": lambda h: h % 2,
    "__floordiv__": lambda h: h // 2,
    "rounding_mode": lambda h: torch.div(h, 2, rounding_mode="floor"),
    "__rtruediv__": lambda h: x / h,
    "out": lambda h: torch.add(h, x, out=torch.empty(2, 2)),
    "torch.vmap": lambda h: torch.vmap(torch.relu)(h),
    "aten.detach": lambda h: torch.tensor(h),
    "torch.equal": lambda h: torch.equal(h, h),
    "view": lambda h: h.view(torch.int32),
    "heaviside": lambda h: torch.heaviside(x, h),
    # outcomes of comparisons
    "all": lambda h: (h > 0).all(),
    "__bool__ of all": lambda h: bool((h > 0).all(-1)),
    "relu": lambda h: torch.relu(h > 0),
    "cat": lambda h: torch.cat([h, h > 0]),
    "__getitem__": lambda h: h[h > 0],
    "__getitem__ of x": lambda h: x[h > 0],
    "__getitem__ by h": lambda h: x[h],
    "torch._is_all_true": lambda h: torch._is_all_true(h),
    # tensors that share memory with one changed in place
    "__add__": lambda h: (torch.relu_(h[0]), h + 1)[1],
    "unsqueeze": lambda h: (h.unsqueeze(0), torch.relu_(h))[0].unsqueeze(0),
    "__iadd__": lambda h: h[0].__iadd__(x),
}


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")  # torch.tensor(h)
@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_operation_line_site_and_remedy(name):
    function = REFUSED[name]
    with pytest.raises(UnsupportedMoments) as refusal:
        propagate(function, NOISY)
    message = str(refusal.value)
    assert name.split(" of ")[0].split(" by ")[0].split(".")[-1] in message
    assert "input 0" in message
    assert "remedy: " in message
    if name not in ("__deepcopy__", "__reduce_ex__", "torch.einsum"):  # called by the library
        assert f"{__file__}:{function.__code__.co_firstlineno}" in message
