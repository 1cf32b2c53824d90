"""Networks of the benchmark of losses at the optimum, the same in both hosts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
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


@dataclass(frozen=True)
class Host:
    """What models call, and what measures them.

    Args:
        package: the front end.
        language: the module with ``sample`` and ``plate``.
        dist: its distributions.
        numerics: the module with ``exp`` and ``relu``.
        array: of a NumPy array.
        start: makes initial locations of values by site name.
        looks: draws: of an objective, a model, the fit, its data, how many particles together and
            how often, the arguments of ``pooled``.
        fresh: forgets earlier fits.
    """

    package: Any
    language: Any
    dist: Any
    numerics: Any
    array: Callable[[np.ndarray], Any]
    start: Callable[..., Any]
    looks: Callable[..., list[tuple[np.ndarray, ...]]]
    fresh: Callable[[], None]


def likelihood(host: Host, family: str) -> Callable[[Any], Any]:
    """The distribution of a datum, given the outputs of the network."""
    dist, exp = host.dist, host.numerics.exp
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
    known = {
        "Bernoulli": standard > 0,
        "Categorical": classes,
        "ordinal": classes,
        "Poisson": np.round(target / 50),
        "Gamma": target / target.mean(),
    }
    y = known.get(family, standard)
    x = (inputs - inputs.mean(0)) / inputs.std(0)
    return x.astype(np.float32), y.astype(np.int64 if y is classes else np.float32)


def sizes(depth: int, family: str) -> list[tuple[int, int]]:
    """Inputs and outputs of every layer."""
    outputs = {"heteroscedastic": 2, "Categorical": 3}.get(family, 1)
    return list(itertools.pairwise([INPUTS, *[HIDDEN] * depth, outputs]))


def network(host: Host, depth: int, family: str) -> Callable:
    """Hidden relu layers and a likelihood; normal priors over all weights and biases."""
    sample, dist, outcome = host.language.sample, host.dist, likelihood(host, family)

    def model(x: Any, y: Any = None) -> Any:
        for layer, shape in enumerate(sizes(depth, family)):
            prior = dist.Normal(0.0, shape[0] ** -0.5).expand(shape).to_event(2)
            weight = sample(f"weight{layer}", prior)
            bias = sample(f"bias{layer}", dist.Normal(0.0, 1.0).expand(shape[1:]).to_event(1))
            x = (host.numerics.relu(x) if layer else x) @ weight + bias
        with host.language.plate("rows", len(x)):
            return sample("obs", outcome(x), obs=y)

    return model


def start(host: Host, depth: int, family: str) -> dict[str, Any]:
    """Locations that training begins at in both hosts (Glorot and Bengio 2010, eq. 12)."""
    rng = np.random.default_rng(0)
    found = {}
    for layer, shape in enumerate(sizes(depth, family)):
        found[f"weight{layer}"] = rng.normal(0.0, (2 / sum(shape)) ** 0.5, shape)
        found[f"bias{layer}"] = rng.normal(0.0, 0.5, shape[1:])
    return {site: host.array(value.astype(np.float32)) for site, value in found.items()}
