"""Dropout, attention, gated units and embeddings of random values."""

from __future__ import annotations

from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from moment_calculus.errors import UnsupportedMoments
from numpyro_moments import Moments, propagate, rules
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import evaluated, propagate_traced

MEAN = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
INPUT = Moments(jnp.asarray(MEAN), variance=jnp.asarray(MEAN**2))
FOLDERS = ["", "shapes", "programs"]


def _dropout(deterministic):
    module = nn.Dropout(0.5, deterministic=deterministic)
    return lambda x: module.apply({}, x, rngs={"dropout": jax.random.key(0)})


@pytest.mark.parametrize("deterministic", [True, False])
def test_dropout_is_its_mask(deterministic):
    """The mask is certain: JAX draws it from a key, and the same key draws the same mask."""
    found = propagate_traced(_dropout(deterministic), INPUT)
    scale = np.asarray(evaluated(_dropout(deterministic), jnp.ones(MEAN.shape)))
    assert_allclose(found.mean, MEAN * scale, rtol=1e-6)
    assert_allclose(found.variance, MEAN**2 * scale**2, rtol=1e-6)


def _multi_head(x):
    module = nn.MultiHeadDotProductAttention(num_heads=1)
    return module.apply(by_numpy(module.init)(jax.random.key(0), jnp.ones(MEAN.shape)), x)


ATTENTION = {
    "jax.nn": lambda x: jax.nn.dot_product_attention(*[x[:, None, :]] * 3),
    "flax": _multi_head,
    "by hand": lambda x: jax.nn.softmax(x @ x.T) @ x,
}


@pytest.mark.parametrize("name", ATTENTION)
def test_self_attention_is_refused(name):
    """Its scores are sums of products of dependent values."""
    with pytest.raises(UnsupportedMoments, match="a product of") as refusal:
        propagate(ATTENTION[name], INPUT)
    assert refusal.value.sites == ("input 0",)
    assert refusal.value.remedy


def test_attention_with_certain_queries_and_keys_is_a_linear_map():
    shares = special.softmax(MEAN @ MEAN.T, -1)
    found = propagate(lambda x: jax.nn.softmax(MEAN @ MEAN.T) @ x, INPUT)
    assert_allclose(found.mean, shares @ MEAN, rtol=1e-5)
    assert_allclose(found.variance, shares**2 @ MEAN**2, rtol=1e-5)


def test_gated_linear_unit_is_a_product():
    found = propagate_traced(jax.nn.glu, INPUT)
    by_hand = propagate_traced(lambda x: x[:, :2] * jax.nn.sigmoid(x[:, 2:]), INPUT)
    assert_allclose(found.mean, by_hand.mean, rtol=1e-6)
    assert_allclose(found.variance, by_hand.variance, rtol=1e-6)


def test_embedding_takes_rows():
    found = propagate(lambda table: jnp.take(table, np.array([0, 2, 2]), axis=0), INPUT)
    assert_allclose(found.mean, MEAN[[0, 2, 2]], rtol=1e-6)
    assert_allclose(found.variance, MEAN[[0, 2, 2]] ** 2, rtol=1e-6)


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_file_of_rules_is_registered(kind):
    package = getattr(rules, kind) if kind else rules
    folder = Path(package.__file__).parent
    files = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {name for name in files if not name.startswith("__")} <= vars(package).keys()
