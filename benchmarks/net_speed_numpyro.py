"""Steps of networks in NumPyro."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from net_speed_rows import Row, compared, timed
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam
from step_time_numpyro import elbo_step, two_heads
from timing import Step

from numpyro_moments import DeterministicELBO, DVIGuide

NAME, BY = "NumPyro", "median"
REFERENCE, FULL, DIAGONAL = "TraceMeanField_ELBO + AutoNormal", "full", "diagonal"
LIMITS = {FULL: 1.0, DIAGONAL: 1.0}
UPDATES, START = 200, 0.05
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "leaky_relu": jax.nn.leaky_relu,
}


def _data(rows: int) -> tuple[jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(0))
    return jax.random.normal(keys[0], (rows, 13)), jax.random.normal(keys[1], (rows,))


def updates(options: argparse.Namespace) -> Iterator[Row]:
    """Updates with Adam, one after another in a scan."""
    steps = {
        REFERENCE: _updates(TraceMeanField_ELBO(), AutoNormal),
        **{name: _updates(DeterministicELBO(covariance=name), DVIGuide) for name in LIMITS},
    }
    found = timed(steps, options.repeats)
    each = {name: scan.part(UPDATES) for name, scan in found.items()}
    what = f"13-50-2, batch 64, update ({UPDATES} in a scan)"
    yield from compared(what, BY, each, LIMITS)


def _updates(elbo: ELBO, guide: Callable) -> Step:
    model, data = partial(two_heads, (13, 50, 2), jax.nn.relu), _data(64)
    svi = SVI(model, guide(model, init_scale=START), Adam(1e-3), elbo)
    start = svi.init(jax.random.key(0), *data)

    @jax.jit
    def run(state: Any, x: jax.Array, y: jax.Array) -> Any:
        return jax.lax.scan(lambda now, _: svi.update(now, x, y), state, length=UPDATES)

    return lambda: jax.block_until_ready(run(start, *data))


def layer_step(sizes: tuple[int, ...], rows: int, activation: str = "relu") -> Step:
    """One ELBO of full covariance with its gradients."""
    model = partial(two_heads, sizes, ACTIVATIONS[activation])
    guide = partial(DVIGuide, init_loc_fn=_by_fan_in)
    return elbo_step(DeterministicELBO(covariance="full"), guide, model=model, data=_data(rows))[0]


def _by_fan_in(site: dict) -> jax.Array:
    """Weights N(0, 1/fan-in), biases 0."""
    shape = site["fn"].event_shape
    if len(shape) == 1:
        return jnp.zeros(shape)
    return jax.random.normal(site["kwargs"]["rng_key"], shape) * shape[0] ** -0.5


def peak(step: Step) -> None:
    """XLA does not say."""
