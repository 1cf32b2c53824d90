"""Attention with random queries, keys and values, by covariances computed backwards."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import numpyro_moments
from moment_calculus.errors import DependenceWarning, UnsupportedMoments
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.operations.linear.dependent import dependent_product
from moment_calculus.operations.shapes.moves import swap_last
from moment_calculus.rulebooks import propagation_of
from tests.backward import dependent
from tests.numpyro.one_program import propagate_traced

TOKENS, WIDTH, HEADS = 5, 4, 2
RANDOM = np.random.default_rng(36)
X = RANDOM.normal(size=(2, TOKENS, WIDTH))
WEIGHTS = RANDOM.normal(size=(5, WIDTH, WIDTH)) / WIDTH**0.5
CAUSAL = np.where(np.tri(TOKENS) > 0, 0.0, -np.inf)


def heads(values, xp):
    shape = (*values.shape[:-1], HEADS, WIDTH // HEADS)
    return xp.swapaxes(values.reshape(shape), -2, -3)


def block(xp, softmax, relu, weights):
    """A causal block of a transformer with two heads, without normalisation."""
    x = xp.asarray(X)
    query, key, value = (heads(x @ weight, xp) for weight in weights[:3])
    scores = query @ xp.swapaxes(key, -1, -2) / math.sqrt(WIDTH // HEADS)
    mixed = softmax(scores + xp.asarray(CAUSAL)) @ value
    hidden = x + xp.swapaxes(mixed, -2, -3).reshape(X.shape)
    return hidden + relu(hidden @ weights[3]) @ weights[4]


def in_torch(*weights):
    return block(torch, lambda x: torch.softmax(x, -1), torch.relu, weights)


def in_jax(*weights):
    return block(jnp, jax.nn.softmax, jax.nn.relu, weights)


def tied(*weights):
    """Queries, keys and values by one matrix, and a second layer of attention."""
    x = torch.as_tensor(X)
    for weight in weights[:2]:
        mapped = x @ weight
        x = x + F.scaled_dot_product_attention(mapped, mapped, mapped)
    return x


@pytest.mark.parametrize("program", [in_torch, pytest.param(tied, id="tied")])
def test_small_variances(program):
    with pytest.warns(DependenceWarning) if program is tied else np.errstate():
        found = dependent.propagated(program, WEIGHTS, 1e-5)
    dependent.check_small_variances(program, WEIGHTS, found)


def test_scores_of_one_query_share_its_deviations():
    """Of independent queries [2, 3] and keys [4, 3], against 10⁵ draws."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(100_000, 2, 4, 3, generator=generator, dtype=torch.float64)
    flow = propagation_of("backward", "exact")
    query, key = (
        site_value(name, mean, torch.full_like(mean, 0.49), flow, event_dim=2)
        for name, mean in zip(("query", "key"), (means[0, :2], means[1]), strict=True)
    )
    scores = dependent_product(query, swap_last(key))
    drawn = (means + 0.7 * noise)[:, 0, :2] @ (means + 0.7 * noise)[:, 1].mT
    centred = drawn - drawn.mean(0)
    products = centred[..., :, None] * centred[..., None, :]
    errors = (scores.covariance - products.mean(0)) / (products.std(0) / len(products) ** 0.5)
    assert float(errors.abs().max()) < 4.5
    torch.testing.assert_close(scores.variance, torch.diagonal(scores.covariance, dim1=-2, dim2=-1))


@pytest.mark.filterwarnings("ignore::moment_calculus.errors.DependenceWarning")
@pytest.mark.parametrize(
    ("program", "spread", "off"),
    [(in_torch, 0.02, 0.03), pytest.param(tied, 0.12, 0.13, id="tied")],
)
def test_the_deviations_of_draws(program, spread, off):
    dependent.check_deviations(program, WEIGHTS, 0.1, spread, off)


def test_hosts_agree_with_gradients():
    dependent.check_hosts(in_torch, in_jax, WEIGHTS)


def test_attention_of_jax_is_that_of_torch():
    """It multiplies transposed values by transposed shares; it computes scores in float32."""
    shape = (*X.shape[:-1], HEADS, WIDTH // HEADS)

    def by_torch(*weights):
        parts = (heads(torch.as_tensor(X) @ weight, torch) for weight in weights[:3])
        mixed = torch.swapaxes(F.scaled_dot_product_attention(*parts), -2, -3)
        return mixed.reshape(X.shape) @ weights[3]

    def by_jax(*weights):
        parts = ((jnp.asarray(X) @ weight).reshape(shape) for weight in weights[:3])
        return jax.nn.dot_product_attention(*parts).reshape(X.shape) @ weights[3]

    found = dependent.propagated(by_torch, WEIGHTS, 0.5)
    with jax.enable_x64(True):
        inputs = dependent.moments(WEIGHTS, 0.5, numpyro_moments, jnp.asarray)
        theirs = propagate_traced(by_jax, *inputs, covariance="backward")
    np.testing.assert_allclose(theirs.mean, found.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(theirs.variance, found.variance, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": torch.as_tensor(CAUSAL)}],
    ids=["plain", "causal", "scale", "mask"],
)
@pytest.mark.parametrize("certain", ["", "queries and keys", "values"])
def test_options_of_torch_s_attention(options, certain):
    def program(*weights):
        x = torch.as_tensor(X)
        fixed = [torch.as_tensor(weight) for weight in WEIGHTS]
        first = fixed if certain == "queries and keys" else weights
        last = fixed if certain == "values" else weights
        parts = x @ first[0], x @ first[1], x @ last[2]
        return F.scaled_dot_product_attention(*parts, **options)

    found = dependent.propagated(program, WEIGHTS, 1e-5)
    dependent.check_small_variances(program, WEIGHTS, found, rtol=0.02)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_other_covariances_name_backward_as_the_remedy(covariance):
    with pytest.raises(UnsupportedMoments, match="covariance='backward'"):
        dependent.propagated(in_torch, WEIGHTS, 0.1, covariance)


def test_dropout_inside_is_refused():
    program = lambda w: F.scaled_dot_product_attention(w, w, w, dropout_p=0.5)  # noqa: E731
    with pytest.raises(UnsupportedMoments, match="dropout_p"):
        dependent.propagated(program, WEIGHTS[:1], 0.1)
