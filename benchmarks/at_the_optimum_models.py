"""Networks of the benchmark of losses at the optimum, the same in both hosts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from models import observed, perceptron, scaled
from sklearn.datasets import load_diabetes

ROWS, INPUTS, HIDDEN = 64, 4, 10
FAMILIES = (
    "Normal",
    "heteroscedastic",
    "StudentT",
    "Bernoulli",
    "Categorical",
    "ordinal",
    "Poisson",
    "Gamma",
)


def likelihood(host: Any, family: str) -> Callable[[Any], Any]:
    """The distribution of a datum, given the outputs of the network."""
    dist, exp = host.dist, host.np.exp
    cuts = host.array(np.array([-1.0, 1.0], np.float32))
    return {
        "Normal": lambda f: dist.Normal(f[..., 0], 0.5),
        "heteroscedastic": lambda f: dist.Normal(f[..., 0], exp(0.5 * f[..., 1])),
        "StudentT": lambda f: dist.StudentT(4.0, f[..., 0], 0.5),
        "Bernoulli": lambda f: dist.Bernoulli(logits=f[..., 0]),
        "Categorical": lambda f: dist.Categorical(logits=f),
        "ordinal": lambda f: dist.OrderedLogistic(f[..., 0], cuts),
        "Poisson": lambda f: dist.Poisson(exp(f[..., 0])),
        "Gamma": lambda f: dist.Gamma(2.0, 2.0 * exp(-f[..., 0])),
    }[family]


def data(family: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised inputs, and the target as the likelihood takes it."""
    inputs, target = load_diabetes(return_X_y=True)
    inputs, target = inputs[:ROWS, [2, 8, 3, 0]], target[:ROWS]
    classes = np.searchsorted(np.quantile(target, [1 / 3, 2 / 3]), target)
    standard = (target - target.mean()) / target.std()
    targets = {
        "Bernoulli": standard > 0,
        "Categorical": classes,
        "ordinal": classes,
        "Poisson": np.round(target / 50),
        "Gamma": target / target.mean(),
    }
    y = targets.get(family, standard)
    x = (inputs - inputs.mean(0)) / inputs.std(0)
    return x.astype(np.float32), y.astype(np.int64 if y is classes else np.float32)


def sizes(depth: int, family: str) -> list[int]:
    """Numbers of inputs, of units in each hidden layer, and of outputs."""
    outputs = {"heteroscedastic": 2, "Categorical": 3}.get(family, 1)
    return [INPUTS, *[HIDDEN] * depth, outputs]


def network(host: Any, depth: int, family: str) -> Callable:
    """Hidden relu layers and a likelihood; normal priors over all weights and biases."""
    outputs = partial(perceptron, host, scaled(host), sizes(depth, family))
    return observed(host, outputs, likelihood(host, family))


def start(host: Any, depth: int, family: str) -> dict[str, Any]:
    """Locations that training begins at in both hosts (Glorot and Bengio 2010, eq. 12)."""
    rng = np.random.default_rng(0)
    values = {}
    for layer, shape in enumerate(itertools.pairwise(sizes(depth, family))):
        values[f"weight{layer}"] = rng.normal(0.0, (2 / sum(shape)) ** 0.5, shape)
        values[f"bias{layer}"] = rng.normal(0.0, 0.5, shape[1:])
    return {site: host.array(value.astype(np.float32)) for site, value in values.items()}
