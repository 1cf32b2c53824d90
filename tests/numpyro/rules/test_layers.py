"""Dropout and attention of random values; every file of rules is registered."""

from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

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


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_file_of_rules_is_registered(kind):
    package = getattr(rules, kind) if kind else rules
    folder = Path(package.__file__).parent
    files = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {name for name in files if not name.startswith("__")} <= vars(package).keys()
