"""Other tools beside the library on the same data: seconds, test log-likelihood, coverage.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/peers_requirements.txt
    PEERS/bin/pip install --no-deps .
    OMP_NUM_THREADS=1 PEERS/bin/python benchmarks/peers.py --out docs/experiments/peers.json

The diabetes data of scikit-learn, standardised, in five parts, of which three are left out one
after the other. A regression has weights N(0, 1), a network 10-20-1 of ReLUs has all weights
N(0, 0.3²); the noise is HalfNormal(1). Each tool runs in a process of its own. Its seconds are
those of the processor, with compiling and without imports, until training has converged (ours,
DADVI), the loss is flat (Adam), or the draws are made (NUTS).
"""

import importlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import harness
import numpy as np
from scipy.special import logsumexp
from sklearn.datasets import load_diabetes

PARTS, LEFT_OUT, DRAWS = 5, 3, 1000
HIDDEN, WEIGHT_SCALE = {"network": 20, "uci": 50}, {"network": 0.3, "uci": 1.0}
BLOCK, MOST, RATE, FLAT = 250, 20_000, 0.01, 0.1
PACKAGES = ("torch", "pyro-ppl", "jax", "numpyro", "tyxe", "laplace-torch", "pymc", "pymc-extras")
# By task: the contender, and MODULE.FUNCTION of this folder that runs it, in a host if it has one.
BOTH = {
    "this library, Pyro": "peers_hosts.ours:pyro",
    "this library, NumPyro": "peers_hosts.ours:numpyro",
    "NUTS, NumPyro": "peers_hosts.nuts:numpyro",
    "AutoNormal, Pyro": "peers_hosts.autonormal_pyro:pyro",
    "AutoNormal, NumPyro": "peers_hosts.autonormal_numpyro:numpyro",
}
TASKS = {
    "regression": {**BOTH, "DADVI, pymc-extras": "peers_others.dadvi"},
    "network": {
        **BOTH,
        "AutoNormal, TyXe": "peers_others.tyxe",
        "Laplace, laplace-torch": "peers_others.laplace",
        "MC dropout, torch": "peers_others.dropout",
    },
}


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows that are left out, standardised; y in units of `scale`."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    scale: float = 1.0
    number: int = 0


@dataclass(frozen=True)
class Found:
    """What a tool says: the density of each row, its 90 % interval, deviations of coefficients."""

    seconds: float
    log_density: Any
    interval: Any = None
    deviations: Any = None


def split(part: int) -> Split:
    """The data without one part, which is left out."""
    data = load_diabetes(scaled=False)
    rows = np.random.default_rng(0).permutation(len(data.target))
    test = rows[part::PARTS]
    train = np.setdiff1d(rows, test)
    x = (data.data - data.data[train].mean(0)) / data.data[train].std(0)
    y = (data.target - data.target[train].mean()) / data.target[train].std()
    return Split(x[train], y[train], x[test], y[test])


timed = partial(harness.clocked, clock=time.process_time)


def until_flat(step: Callable[[], float]) -> None:
    """Step until the mean loss of a block is no longer lower than that of all before it."""
    best = np.inf
    for _ in range(MOST // BLOCK):
        loss = float(np.mean([step() for _ in range(BLOCK)]))
        if loss > best - FLAT:
            return
        best = loss


def of_draws(seconds: float, data: Split, means: Any, scales: Any, deviations: Any = None) -> Found:
    """The mixture of the Normals of all draws, [draws, rows]."""
    means, scales = (np.asarray(part, dtype=float) for part in np.broadcast_arrays(means, scales))
    density = -0.5 * ((data.y_test - means) / scales) ** 2 - np.log(scales * np.sqrt(2 * np.pi))
    noise = np.random.default_rng(0).normal(size=(20, *means.shape))
    draws = (means + scales * noise).reshape(-1, means.shape[1])
    log_density = logsumexp(density, axis=0) - np.log(len(means))
    return Found(seconds, log_density, np.quantile(draws, [0.05, 0.95], axis=0), deviations)


def summary(found: Found, data: Split) -> dict[str, Any]:
    """Numbers of one part."""
    lower, upper = (np.asarray(end) for end in found.interval)
    deviations = None if found.deviations is None else np.asarray(found.deviations).tolist()
    return {
        "seconds": found.seconds,
        "log_likelihood": float(np.mean(np.asarray(found.log_density))),
        "inside": float(np.mean((lower < data.y_test) & (data.y_test < upper))),
        "deviations": deviations,
    }


def contender(where: str, task: str) -> Callable[[Split], Found]:
    """The function that runs a contender; importing it imports its tool."""
    where, _, host = where.partition(":")
    module, function = where.split(".")
    run = getattr(importlib.import_module(module), function)
    return partial(run, *([harness.load(host)] if host else []), task)


def in_a_process(task: str, name: str) -> list[dict[str, Any]]:
    """All parts by one contender."""
    run = contender(TASKS[task][name], task)
    return [summary(run(data), data) for data in map(split, range(LEFT_OUT))]


def main(arguments=None):
    jobs = (1, "processes at the same time")
    options = harness.parse(__doc__, arguments, "--only --out", jobs=jobs)
    results: dict[str, Any] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {package: harness.version_of(package) for package in PACKAGES},
        "settings": {"parts": PARTS, "left_out": LEFT_OUT, "hidden": 20, "draws": DRAWS},
        "tasks": {task: {} for task in TASKS},
    }
    both = [(task, name) for task, names in TASKS.items() for name in names if options.only in name]
    found = harness.in_processes(in_a_process, both, options.jobs)
    for (task, name), parts in zip(both, found, strict=True):
        results["tasks"][task][name] = parts
        means = {key: np.mean([part[key] for part in parts]) for key in list(parts[0])[:3]}
        print(task, name, *(f"{key} {mean:.3f}" for key, mean in means.items()), flush=True)
    harness.write(options.out, results)


if __name__ == "__main__":
    main()
