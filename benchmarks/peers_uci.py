"""Other tools beside the library on four UCI sets: seconds, and test log-likelihood of ten splits.

    OMP_NUM_THREADS=1 PYTHONPATH=. PEERS/bin/python benchmarks/peers_uci.py --data DIR \\
        --out docs/experiments/peers_uci.json

PEERS is the environment of `peers.py`; DIR holds uci/NAME.npz, as for examples/uci_regression.py.
One hidden layer of 50 ReLUs gives the mean and the log variance of y, with weights N(0, 1): the
network of the README, for every tool that takes a model. laplace-torch takes none: it has one noise
for all rows. All contenders run in one process, one split after the other. Seconds are those of the
processor, of training with all that leads to the posterior; "warm" is the second split and later
ones, without compiling. --slow N runs `SLOW` ones on the first N splits only. --first N adds
splits from N on to the file, in a process that runs split N - 1 before without keeping it.

--check fails where the library is below one of `RIVALS` by more than one standard error of the
paired difference, or takes more than 1.5 times the seconds of laplace-torch once warm.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import hosts
import numpy as np
from regression import Split, standardise
from scipy.special import logsumexp
from uci_regression import load

SETS, SPLITS, HIDDEN, STEPS, RATE, DRAWS = (
    ("yacht", "boston", "energy", "concrete"),
    10,
    50,
    2000,  # of what Adam trains on all rows: as many as `fit` makes
    0.01,
    1000,
)
LONGEST = 1.5  # times laplace-torch's seconds
PACKAGES = ("torch", "pyro-ppl", "jax", "numpyro", "tyxe", "laplace-torch", "bayesian-torch")
LAPLACE = "laplace-torch"
OURS = ("this library, NumPyro", "this library, Pyro", "this library, Pyro compiled")
RIVALS = (LAPLACE, "bayesian-torch", "TyXe", "AutoNormal, NumPyro")
# The contender, and MODULE.FUNCTION of this folder that runs it.
CONTENDERS = {
    "this library, NumPyro": "peers_uci_numpyro.ours",
    "this library, Pyro": "peers_uci_torch.ours",
    "this library, Pyro compiled": "peers_uci_torch.compiled",
    LAPLACE: "peers_uci_torch.laplace",
    "bayesian-torch": "peers_uci_torch.bayesian",
    "TyXe": "peers_uci_torch.tyxe",
    "AutoNormal, NumPyro": "peers_uci_numpyro.autonormal",
    "deep ensemble of five, torch": "peers_uci_torch.ensemble",
    "NUTS, NumPyro": "peers_uci_numpyro.nuts",
}
SLOW = ("this library, Pyro", "TyXe", "NUTS, NumPyro")


@dataclass(frozen=True)
class Found:
    """Seconds of a training, and the log density of each test row in standardised units."""

    seconds: float
    log_density: Any


def mixture(seconds: float, data: Split, means: Any, scales: Any) -> Found:
    """The densities by the mean over all draws, [draws, rows]."""
    means, scales = np.asarray(means, dtype=float), np.asarray(scales, dtype=float)
    density = -0.5 * ((data.y_test - means) / scales) ** 2 - np.log(scales * np.sqrt(2 * np.pi))
    return Found(seconds, logsumexp(density, axis=0) - np.log(len(means)))


def contenders(only: str) -> dict[str, Callable[[Split, int], Found]]:
    """Their functions, imported at once: XLA compiles anew after torch is imported."""
    found = {}
    for name, where in CONTENDERS.items():
        module, function = where.split(".")
        found[name] = getattr(importlib.import_module(module), function)
    return {name: run for name, run in found.items() if only in name}


def measure(
    results: dict[str, Any], options: argparse.Namespace, number: int, runs: dict[str, Callable]
) -> None:
    """Add a split of each set by all contenders, one after the other."""
    for name in options.sets:
        arrays = load(options.data, name)
        split = standardise(arrays["X"], arrays["y"], arrays["test_mask"][number])
        for one, run in runs.items():
            if one in SLOW and number >= options.slow:
                continue
            found = run(split, number)
            density = float(np.mean(np.asarray(found.log_density))) - np.log(split.scale)
            numbers = found.seconds, float(density), os.getloadavg()[0]
            mine = results["sets"].setdefault(name, {}).setdefault(one, {})
            for key, value in zip(("seconds", "log_likelihood", "load"), numbers, strict=True):
                mine.setdefault(key, []).append(round(value, 4))
            print(name, number, one, *(f"{value:.3f}" for value in numbers), flush=True)


def difference(ours: list[float], other: list[float]) -> tuple[float, float]:
    """The mean of paired differences on the splits of both, and its standard error; a split where
    another tool diverged is left out."""
    gaps = np.subtract(*zip(*zip(ours, other, strict=False), strict=True))
    gaps = gaps[np.isfinite(gaps) | ~np.isfinite(ours[: len(gaps)])]
    error = gaps.std(ddof=1) / len(gaps) ** 0.5 if len(gaps) > 1 else np.nan
    return float(gaps.mean()), float(error)


def warm(seconds: list[float]) -> float:
    """The mean of the second split and later ones."""
    return float(np.mean(seconds[1:] or seconds))


def failures(sets: dict[str, dict[str, Any]]) -> list[str]:
    """What does not hold, in words."""
    lines = []
    for name, found in sets.items():
        for ours in OURS:
            mine = found[ours]
            for rival in RIVALS:
                gap, error = difference(mine["log_likelihood"], found[rival]["log_likelihood"])
                if not gap >= -error:  # NaN, where one split has no error, is a failure
                    lines.append(f"{name}: {ours} less {rival} is {gap:.3f} ± {error:.3f}")
            ratio = warm(mine["seconds"]) / warm(found[LAPLACE]["seconds"])
            if ratio > LONGEST:
                lines.append(f"{name}: {ours} takes {ratio:.1f} times the seconds of {LAPLACE}")
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = hosts.parser(__doc__, "--only", "--out", "--check")
    parser.add_argument("--data", type=Path, required=True, help="folder that holds uci/*.npz")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--first", type=int, default=0, help="split to go on with (0)")
    parser.add_argument("--slow", type=int, default=SPLITS, help="splits of the slow ones (all)")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {
        "processor": hosts.described("pyro"),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
        "sets": {},
    }
    runs = contenders(options.only)
    if options.first:
        measure({"sets": {}}, options, options.first - 1, runs)  # compiles
        results = json.loads(Path(options.out).read_text())
    for number in range(options.first, options.splits):
        measure(results, options, number, runs)
        hosts.write(options.out, results)
    failed = failures(results["sets"]) if not options.only else []
    print("\n".join(failed))
    if options.check and failed:
        raise SystemExit(json.dumps(failed))


if __name__ == "__main__":
    main()
