"""A training step of a plain network with dropout of its inputs and units, and two heads."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from timing import Step


def plain_dropout(host: ModuleType, *arguments: Any) -> Step:
    """A loss with its gradients in torch, so many updates in a scan in JAX."""
    return (in_torch if host.NAME == "Pyro" else in_jax)(host, *arguments)


def in_torch(
    host: ModuleType, count: int, sizes: tuple[int, ...], rate: float, data: tuple
) -> Step:
    """A loss with its gradients of a network with dropout of inputs and units, and two heads."""
    import torch
    from torch import nn

    inputs, units, outputs = sizes
    parts = nn.Dropout(rate), nn.Linear(inputs, units), nn.ReLU()
    net, (x, y) = nn.Sequential(*parts, nn.Dropout(rate), nn.Linear(units, outputs)), data

    def step() -> None:
        net.zero_grad()
        mean, log_variance = net(x).unbind(-1)
        density = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance)).log_prob(y)
        decay = sum(part.square().sum() for part in net.parameters())
        (0.5 * decay - density.sum()).backward()

    return step


def in_jax(host: ModuleType, count: int, sizes: tuple[int, ...], rate: float, data: tuple) -> Step:
    """So many updates in a scan of a network with dropout of inputs and units, and two heads."""
    import jax
    import jax.numpy as np
    import numpyro.distributions as dist
    import optax
    from flax import linen as nn

    _, units, outputs = sizes
    dropout = partial(nn.Dropout, rate, deterministic=False)
    net = nn.Sequential([dropout(), nn.Dense(units), nn.relu, dropout(), nn.Dense(outputs)])
    start = net.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, data[0])
    adam = optax.adam(1e-3)

    def loss(params: Any, key: Any, x: Any, y: Any) -> Any:
        mean, log_variance = np.moveaxis(net.apply(params, x, rngs={"dropout": key}), -1, 0)
        density = dist.Normal(mean, np.exp(0.5 * log_variance)).log_prob(y)
        decay = sum(np.sum(part**2) for part in jax.tree.leaves(params))
        return 0.5 * decay - np.sum(density)

    def run(state: Any, x: Any, y: Any) -> Any:
        def update(now: Any, _: None) -> tuple[Any, Any]:
            (params, moments, key), draw = now, jax.random.split(now[2])[0]
            value, slope = jax.value_and_grad(loss)(params, draw, x, y)
            change, moments = adam.update(slope, moments, params)
            return (optax.apply_updates(params, change), moments, jax.random.split(key)[1]), value

        return jax.lax.scan(update, state, length=count)

    return host.timed(run, (start, adam.init(start), jax.random.key(0)), *data)[0]
