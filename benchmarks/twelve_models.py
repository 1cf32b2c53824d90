"""Twelve models of different kinds, with data, as users of both hosts would write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from models import classification, linear, observed, perceptron, scaled, two_heads

HIDDEN, INPUTS, POINTS, GROUPS = 10, 3, 60, 20


def layer(host: Any, name: str, x: Any, units: int) -> Any:
    """A linear map with random weights."""
    weight = host.sample(f"{name}.weight", scaled(host)([x.shape[-1], units]))
    return x @ weight + host.sample(f"{name}.bias", scaled(host)([units]))


def residual(host: Any, x: Any) -> Any:
    """Two residual blocks between linear maps."""
    h = layer(host, "first", x, HIDDEN)
    for name in ("block0", "block1"):
        h = h + host.relu(layer(host, name, h, HIDDEN))
    return layer(host, "last", h, 1)


def normalised(host: Any, x: Any) -> Any:
    """A hidden layer whose units are standardised, and GELU."""
    h = host.standardise(layer(host, "first", x, HIDDEN))
    return layer(host, "last", host.gelu(h), 1)


def two_sites(host: Any) -> Callable:
    """One hidden layer, two observed sites: a real one and a binary one."""

    def model(x: Any, y: Any, labels: Any) -> None:
        h = host.np.tanh(layer(host, "hidden", x, HIDDEN))
        real, binary = (layer(host, name, h, 1)[..., 0] for name in ("real", "binary"))
        with host.plate("data", len(x)):
            host.sample("obs", host.dist.Normal(real, 0.4), obs=y)
            host.sample("labels", host.dist.Bernoulli(logits=binary), obs=labels)

    return model


def hierarchical(host: Any) -> Callable:
    """Twenty groups around a common mean, with a common spread."""

    def model(group: Any, y: Any) -> None:
        mu = host.sample("mu", host.dist.Normal(0.0, 2.0))
        tau = host.sample("tau", host.dist.LogNormal(-0.5, 0.5))
        with host.plate("groups", GROUPS):
            theta = host.sample("theta", host.dist.Normal(mu, tau))
        with host.plate("data", len(y)):
            host.sample("obs", host.dist.Normal(theta[group], 0.5), obs=y)

    return model


def local_latents(host: Any) -> Callable:
    """Noisy inputs: every observation has a latent true input of its own."""

    def model(x: Any, y: Any) -> None:
        slope = host.sample("slope", host.dist.Normal(0.0, 1.0))
        with host.plate("data", len(x)):
            z = host.sample("z", host.dist.Normal(x[:, 0], 0.3))
            host.sample("obs", host.dist.Normal(slope * z, 0.5), obs=y)

    return model


def data(host: Any) -> dict[str, Any]:
    """Inputs, groups, and outcomes."""

    def noise(seed: int, *shape: int) -> np.ndarray:
        return np.asarray(host.normal(seed, *shape))

    x, y_noise, group = noise(0, POINTS, INPUTS), noise(1, POINTS), np.arange(POINTS) % GROUPS
    trend = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1]
    y = trend + 0.3 * y_noise
    grades = np.searchsorted([-0.5, 0.3, 1.0], y)
    arrays = {
        "x": x,
        "y": y,
        "heavy": trend + 0.3 * y_noise * np.exp(np.maximum(noise(2, POINTS), 0)),
        "binary": (y > 0).astype(y.dtype),
        "grades": grades,
        "classes": np.minimum(grades, 2),
        "counts": np.random.default_rng(3).poisson(np.exp(0.5 * trend)).astype(y.dtype),
        "group": group,
        "grouped": noise(4, GROUPS)[group] + 0.5 * noise(5, POINTS),
    }
    return {name: host.array(value) for name, value in arrays.items()}


def twelve_models(host: Any) -> dict[str, tuple[Callable, tuple[Any, ...]]]:
    """Every model with its arguments, by name."""
    dist, arrays, cutpoints = host.dist, data(host), host.array([-1.0, 0.5, 1.5])
    one, two, three = (
        partial(perceptron, host, scaled(host), (INPUTS, HIDDEN, outputs)) for outputs in (1, 2, 3)
    )

    def normal(f: Any) -> Any:
        return dist.Normal(f[..., 0], 0.3)

    def student(f: Any) -> Any:
        return dist.StudentT(4.0, f[..., 0], 0.3)

    def ordinal(f: Any) -> Any:
        return dist.OrderedLogistic(f[..., 0], cutpoints)

    models = {
        "regression": (observed(host, one, normal), "x y"),
        "heteroscedastic": (two_heads(host, two), "x heavy"),
        "robust": (observed(host, one, student), "x heavy"),
        "logistic": (observed(host, linear(host), lambda f: dist.Bernoulli(logits=f)), "x binary"),
        "ordinal": (observed(host, one, ordinal), "x grades"),
        "softmax": (classification(host, three), "x classes"),
        "Poisson": (
            observed(host, linear(host), lambda f: dist.Poisson(host.np.exp(f))),
            "x counts",
        ),
        "hierarchical": (hierarchical(host), "group grouped"),
        "residual": (observed(host, partial(residual, host), normal), "x y"),
        "layer norm": (observed(host, partial(normalised, host), normal), "x y"),
        "two heads": (two_sites(host), "x y binary"),
        "local latents": (local_latents(host), "x y"),
    }
    return {
        name: (model, tuple(arrays[part] for part in arguments.split()))
        for name, (model, arguments) in models.items()
    }
