"""Attention modules and layers of transformers of torch, by covariances computed backwards."""

import pytest
import torch
from torch import nn

from moment_calculus.errors import UnsupportedMoments
from tests.backward.dependent import check_small_variances, propagated

torch.manual_seed(0)
X, Y = torch.randn(3, 5, 8).double(), torch.randn(3, 4, 8).double()
PADDED = torch.tensor([[0, 0, 0, 1, 1], [0] * 5, [0, 0, 0, 0, 1]]).bool()
CAUSAL = nn.Transformer.generate_square_subsequent_mask(5).double()
pytestmark = pytest.mark.filterwarnings("ignore::moment_calculus.errors.DependenceWarning")


def attention(place=0, inputs=(X, X, X), **options):
    """Return a module of attention, its inputs and options, and which result is looked at."""
    return lambda: (nn.MultiheadAttention(8, 2, batch_first=True), inputs, options, place)


def layer(number=1, options=None, **named):
    """Return layers of a transformer."""

    def make():
        module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **named)
        return nn.TransformerEncoder(module, number), (X,), options or {}, None

    return make


PROGRAMS = {
    "self": attention(),
    "averaged weights": attention(1),
    "weights of each head": attention(1, average_attn_weights=False),
    "cross": attention(0, (X, Y, Y)),
    "padding": attention(key_padding_mask=PADDED, need_weights=False),
    "causal": attention(attn_mask=CAUSAL, is_causal=True, need_weights=False),
    "both masks": attention(
        attn_mask=CAUSAL, key_padding_mask=torch.where(PADDED, -torch.inf, 0.0).double()
    ),
    "a mask for each head": attention(attn_mask=CAUSAL.expand(6, 5, 5)),
    "one sequence": attention(0, (X[0], X[0], X[0]), key_padding_mask=PADDED[0]),
    "weights of one sequence": attention(1, (X[0], Y[0], Y[0])),
    "other widths": lambda: (
        nn.MultiheadAttention(8, 2, kdim=8, vdim=4, bias=False, batch_first=True),
        (X, Y, Y[..., :4]),
        {},
        0,
    ),
    "layer": layer(),
    "layer with norms first": layer(norm_first=True, activation="gelu"),
    "two layers": layer(2),
    "layer with a mask": layer(options={"mask": CAUSAL}),
}


def as_function(make):
    """Return a program as a function of its parameters, and these."""
    torch.manual_seed(1)
    module, inputs, options, place = make()
    module = module.double().eval()
    names = [name for name, _ in module.named_parameters()]

    def program(*weights):
        named = dict(zip(names, weights, strict=True))
        found = torch.func.functional_call(module, named, inputs, options)
        return found if place is None else found[place]

    return program, tuple(p.detach() + 0.1 * torch.randn_like(p) for p in module.parameters())


@pytest.mark.parametrize("name", PROGRAMS)
def test_small_variances(name):
    program, weights = as_function(PROGRAMS[name])
    found = propagated(program, weights, 1e-5)
    check_small_variances(program, weights, found, atol=1e-16, mean=1e-7)


def test_random_inputs_and_certain_weights():
    module = layer()()[0].double().eval().requires_grad_(False)
    check_small_variances(module, [X], propagated(module, [X], 1e-5), atol=1e-16)


def test_a_block_has_the_deviations_of_draws():
    """Width 32, four heads, 16 tokens, weights of sd 0.02."""
    torch.manual_seed(2)
    module = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    names, weights = zip(*[(n, p.detach()) for n, p in module.named_parameters()], strict=True)
    x = torch.randn(1, 16, 32)

    def program(*weights):
        return torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (x,))

    found = propagated(program, weights, 0.02)
    draws = torch.vmap(program, chunk_size=500)(
        *[w + 0.02 * torch.randn((2000, *w.shape)) for w in weights]
    )
    ratio = found.variance.sqrt() / draws.std(0)
    assert float(ratio.log().mean().exp()) == pytest.approx(1, abs=0.02)
    with pytest.raises(UnsupportedMoments, match="covariance='backward'"):
        propagated(program, weights, 0.02, "diagonal")


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"dropout": 0.5}, "dropout"),
        ({"add_bias_kv": True}, "add_bias_kv"),
        ({"add_zero_attn": True}, "add_zero_attn"),
    ],
)
def test_what_is_refused(options, cause):
    module = nn.MultiheadAttention(8, 2, batch_first=True, **options).double()
    with pytest.raises(UnsupportedMoments, match=cause):
        propagated(lambda x: module(x, x, x)[0], [X], 0.1)
