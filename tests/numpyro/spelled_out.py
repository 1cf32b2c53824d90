"""Composite functions as JAX and its libraries spell them, beside what PyTorch calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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
    "reshaped": lambda x: jax.nn.softmax(x[:, None, :])[:, 0, :],
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
