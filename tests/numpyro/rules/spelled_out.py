"""Composite functions of JAX and its libraries, beside PyTorch's."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from flax import nnx
from jax import lax

FEATURES = 4
SHAPE = (3, FEATURES)


def _exp(x: Any) -> Any:
    return jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True)))


def _shifted(x: Any) -> Any:
    return x - x.max(-1, keepdims=True)


def _stable_logsumexp(x: Any) -> Any:
    largest = lax.stop_gradient(x.max(-1))
    return largest + jnp.log(jnp.sum(jnp.exp(x - largest[:, None]), -1))


def _columns(function: Callable) -> Callable:
    """Over the first axis of the transposed input, by ``vmap`` over the second."""
    return lambda x: jax.vmap(function, in_axes=1)(x.T)


SOFTMAX: dict[str, Callable] = {
    "jax.nn.softmax": jax.nn.softmax,
    "under vmap": jax.vmap(jax.nn.softmax),
    "under vmap of columns": _columns(jax.nn.softmax),
    "by hand": lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True),
    "by hand, stable": lambda x: _exp(x) / _exp(x).sum(-1)[:, None],
    "by hand, maximum with its gradient": lambda x: (
        jnp.exp(_shifted(x)) / jnp.sum(jnp.exp(_shifted(x)), -1, keepdims=True)
    ),
    "stabilised by the maximum of all": lambda x: (
        jnp.exp(x - x.max()) / jnp.exp(x - x.max()).sum(-1, keepdims=True)
    ),
    "by a reciprocal": lambda x: jnp.exp(x) * (1 / jnp.exp(x).sum(-1, keepdims=True)),
    "of log-probabilities": lambda x: jax.nn.softmax(jax.nn.log_softmax(x)),
    "exp of log_softmax": lambda x: jnp.exp(jax.nn.log_softmax(x)),
    "under jit and checkpoint": jax.checkpoint(jax.jit(jax.nn.softmax)),
    "moved around": lambda x: jax.nn.softmax(x)[None].transpose(1, 0, 2).reshape(x.shape),
}
LOG_SOFTMAX: dict[str, Callable] = {
    "jax.nn.log_softmax": jax.nn.log_softmax,
    "under vmap": jax.vmap(jax.nn.log_softmax),
    "twice": lambda x: jax.nn.log_softmax(jax.nn.log_softmax(x)),
    "log of softmax": lambda x: jnp.log(jax.nn.softmax(x)),
    "minus logsumexp": lambda x: x - jax.nn.logsumexp(x, -1, keepdims=True),
    "minus logsumexp[:, None]": lambda x: x - jax.nn.logsumexp(x, axis=1)[:, None],
    "minus the log of a sum": lambda x: x - jnp.log(jnp.exp(x).sum(-1, keepdims=True)),
}
LOGSUMEXP: dict[str, Callable] = {
    "jax.nn.logsumexp": lambda x: jax.nn.logsumexp(x, axis=-1),
    "keepdims": lambda x: jax.nn.logsumexp(x, axis=-1, keepdims=True)[:, 0],
    "jax.scipy": lambda x: jax.scipy.special.logsumexp(x, axis=1),
    "under vmap": jax.vmap(jax.nn.logsumexp),
    "under vmap of columns": _columns(jax.nn.logsumexp),
    "by hand": lambda x: jnp.log(jnp.exp(x).sum(-1)),
    "by hand, stable": _stable_logsumexp,
    "logmeanexp": lambda x: jax.nn.logmeanexp(x, axis=-1) + np.log(FEATURES),
}
EPS = 1e-3


def _mean(x: Any) -> Any:
    return x.mean(-1, keepdims=True)


def _fast_variance(x: Any) -> Any:
    return jnp.maximum(0.0, jnp.mean(x * x, -1) - jnp.mean(x, -1) ** 2)


def _module(module: nn.Module) -> Callable:
    variables = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, float), module.init(jax.random.key(0), jnp.ones(SHAPE))
    )
    return lambda x: module.apply(variables, x)


LAYER_NORM: dict[str, Callable] = {
    "by hand": lambda x: (x - _mean(x)) / jnp.sqrt(x.var(-1, keepdims=True) + EPS),
    "by hand, rsqrt": lambda x: (x - _mean(x)) * lax.rsqrt(x.var(-1, keepdims=True) + EPS),
    "by hand, a power": lambda x: (x - _mean(x)) * (x.var(-1, keepdims=True) + EPS) ** -0.5,
    "by hand, a reciprocal": lambda x: (
        1 / jnp.sqrt(_mean((x - _mean(x)) ** 2) + EPS) * (x - _mean(x))
    ),
    "by hand, sums": lambda x: (
        (x - x.sum(-1, keepdims=True) * 0.25)
        / jnp.sqrt(jnp.sum((x.sum(-1, keepdims=True) / 4 - x) ** 2, -1, keepdims=True) / 4 + EPS)
    ),
    "by hand, one pass": lambda x: (x - _mean(x)) / jnp.sqrt(_fast_variance(x) + EPS)[:, None],
    "by hand, centred before": lambda x: _over_root(x - _mean(x)),
    "jax.nn.standardize": lambda x: jax.nn.standardize(x, epsilon=EPS),
    "columns": lambda x: jax.nn.standardize(x.T, axis=0, epsilon=EPS).T,
    "under vmap of columns": _columns(lambda x: jax.nn.standardize(x, epsilon=EPS)),
    "flax.linen": lambda x: _module(nn.LayerNorm(epsilon=EPS))(x),
    "flax.linen, two passes": lambda x: _module(nn.LayerNorm(epsilon=EPS, use_fast_variance=False))(
        x
    ),
    "flax.nnx": lambda x: nnx.LayerNorm(FEATURES, epsilon=EPS, rngs=nnx.Rngs(0))(x),
    "equinox": lambda x: jax.vmap(eqx.nn.LayerNorm(FEATURES, eps=EPS))(x),
}


def _over_root(x: Any) -> Any:
    return x * lax.rsqrt(_mean(x**2) + EPS)


RMS_NORM: dict[str, Callable] = {
    "by hand": _over_root,
    "by hand, a quotient": lambda x: x / jnp.sqrt(_mean(x * x) + EPS),
    "by hand, a norm": lambda x: 2 * (x / jnp.sqrt(jnp.sum(x**2, -1, keepdims=True) + 4 * EPS)),
    "under vmap of columns": _columns(lambda x: x / jnp.sqrt(jnp.mean(x**2) + EPS)),
    "flax.linen": lambda x: _module(nn.RMSNorm(epsilon=EPS))(x),
    "flax.nnx": lambda x: nnx.RMSNorm(FEATURES, epsilon=EPS, rngs=nnx.Rngs(0))(x),
    "equinox": lambda x: jax.vmap(eqx.nn.RMSNorm(FEATURES, eps=EPS))(x),
}
GROUP_NORM: dict[str, Callable] = {
    "by hand": lambda x: jax.nn.standardize(x.reshape(-1, 2, 2), epsilon=EPS).reshape(x.shape),
    "flax.linen": lambda x: _module(nn.GroupNorm(num_groups=2, epsilon=EPS))(x),
    "flax.nnx": lambda x: nnx.GroupNorm(FEATURES, num_groups=2, epsilon=EPS, rngs=nnx.Rngs(0))(x),
    "equinox": lambda x: jax.vmap(eqx.nn.GroupNorm(2, FEATURES, eps=EPS))(x),
}
BATCH_NORM: dict[str, Callable] = {
    "flax.linen": lambda x: _module(nn.BatchNorm(use_running_average=True, epsilon=EPS))(x),
    "flax.nnx": lambda x: nnx.BatchNorm(
        FEATURES, use_running_average=True, epsilon=EPS, rngs=nnx.Rngs(0)
    )(x),
}


def _layer_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (FEATURES,), eps=EPS)


def _batch_norm(x: torch.Tensor) -> torch.Tensor:
    mean, variance = torch.zeros(FEATURES), torch.ones(FEATURES)
    return F.batch_norm(x, mean.double(), variance.double(), eps=EPS)


# What JAX spells out, and what PyTorch calls it.
COMPOSITES: dict[str, tuple[dict[str, Callable], Callable]] = {
    "softmax": (SOFTMAX, lambda x: F.softmax(x, -1)),
    "log_softmax": (LOG_SOFTMAX, lambda x: F.log_softmax(x, -1)),
    "logsumexp": (LOGSUMEXP, lambda x: torch.logsumexp(x, -1)),
}
NORMALISATIONS: dict[str, tuple[dict[str, Callable], Callable]] = {
    "layer norm": (LAYER_NORM, _layer_norm),
    "rms norm": (RMS_NORM, lambda x: F.rms_norm(x, (FEATURES,), eps=EPS)),
    "group norm": (GROUP_NORM, lambda x: F.group_norm(x, 2, eps=EPS)),
    "batch norm": (BATCH_NORM, _batch_norm),
}


def rows(tables: dict[str, tuple[dict[str, Callable], Callable]]) -> dict[str, tuple]:
    """Every spelling with its reference, by a name for the test."""
    return {
        f"{name}: {spelling}": (function, reference)
        for name, (spellings, reference) in tables.items()
        for spelling, function in spellings.items()
    }


# Programs that are nearly one of these, which are refused, and the cause for the first kind.
NOT_SOFTMAX = {
    "numerator and denominator of different logits": (
        lambda x: jnp.exp(x) / jnp.exp(2 * x).sum(-1, keepdims=True),
        "division by a random value",
    ),
    "numerator and denominator over different axes": (
        lambda x: jnp.exp(x) / jnp.exp(x).sum(0, keepdims=True),
        "same latent site",
    ),
    "sum over part of the classes": (
        lambda x: jnp.exp(x) / jnp.exp(x[:, :3]).sum(-1, keepdims=True),
        "division by a random value",
    ),
    "groups of another row": (
        lambda x: jnp.exp(x) / jnp.exp(x).sum(-1)[::-1, None],
        "division by a random value",
    ),
    "two axes": (lambda x: jax.nn.softmax(x, axis=(0, 1)), "softmax over axes"),
    "logsumexp over two axes": (lambda x: jax.nn.logsumexp(x), "logsumexp over axes"),
    "dependent rows": (lambda x: jax.nn.softmax(x, axis=0), "same latent site"),
    "masked classes": (
        lambda x: jax.nn.softmax(x, where=jnp.arange(4) < 3),
        "not recognised as a softmax",
    ),
    "weighted classes": (
        lambda x: jax.nn.logsumexp(x, axis=-1, b=jnp.arange(1.0, 5.0)),
        "not recognised as a softmax",
    ),
    "a stabiliser that is not added back": (
        lambda x: jnp.log(jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True))).sum(-1)),
        "not recognised as a softmax",
    ),
    "a maximum without its gradient": (
        lambda x: lax.stop_gradient(x.max(-1)),
        "not recognised as a softmax",
    ),
    "a value without its gradient": (lambda x: lax.stop_gradient(x), "without its gradient"),
    "deviations of other rows": (
        lambda x: x / jnp.sqrt(jnp.mean(x**2, -1)[::-1, None] + EPS),
        "takes negative values",
    ),
}


def _over_two(x):
    largest = jnp.maximum(x.std(-1, keepdims=True), 1e-6)
    return x / largest


NOT_NORMALISATIONS = {
    "mean of another value": lambda x: (
        (x - (2 * x).mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + EPS)
    ),
    "variance of another value": lambda x: (
        (x - x.mean(-1, keepdims=True)) / jnp.sqrt((2 * x).var(-1, keepdims=True) + EPS)
    ),
    "variance over another axis": lambda x: (
        (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(0, keepdims=True) + EPS)
    ),
    "means of other groups": lambda x: (x - x.mean(0)) * lax.rsqrt(x.var(-1, keepdims=True) + EPS),
    "not centred": lambda x: x / jnp.sqrt(x.var(-1, keepdims=True) + EPS),
    "centred, but the root of the mean square": lambda x: (
        (x - x.mean(-1, keepdims=True)) * lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + EPS)
    ),
    "half of the mean removed": lambda x: (
        (x - x.sum(-1, keepdims=True) / 8) * lax.rsqrt(x.var(-1, keepdims=True) + EPS)
    ),
    "half of the squared mean removed": lambda x: (
        (x - x.mean(-1, keepdims=True))
        * lax.rsqrt(jnp.mean(x**2, -1) - 0.5 * jnp.mean(x, -1) ** 2 + EPS)[:, None]
    ),
    "ε outside of the root": lambda x: (
        (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + EPS)
    ),
    "a bound on the deviation": _over_two,
    "masked features": lambda x: jax.nn.standardize(x, where=jnp.arange(FEATURES) < 3),
    "weighted squares, clipped": lambda x: (
        x * lax.rsqrt(jnp.maximum((x**2 * jnp.arange(1.0, 5.0)).sum(-1, keepdims=True), 0) + EPS)
    ),
    "variance minus another, clipped": lambda x: (
        x * lax.rsqrt(jnp.maximum(jnp.mean(x**2) - jnp.mean(x, -1, keepdims=True) ** 2, 0) + EPS)
    ),
    "a deviation alone": lambda x: x.std(-1),
    "a norm alone": lambda x: jnp.linalg.norm(x, axis=-1),
}
