"""Steps of ordinary regressions: one ELBO with its gradient, against the host's sampled ELBO.

    OMP_NUM_THREADS=1 python benchmarks/ordinary_models.py [--backend numpyro] [--check]

Regressions of P = 20 covariates with each likelihood, a gamma-Poisson regression of 60 rows, and
three models of the examples of NumPyro. The reference is TraceMeanField_ELBO with AutoNormal and
one particle, in turn with ours in one process, on one thread. In Pyro the minimum over the repeats
counts, in NumPyro, where everything runs under jax.jit, the median; first steps are there compared
too (the time of tracing and compiling).
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

from timing import report

ROWS = 10_000


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if options.backend == "numpyro":
        # XLA makes one thread for each processor that it may use when it starts
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    report(importlib.import_module(f"ordinary_models_{options.backend}").tables(options), options)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="pyro")
    parser.add_argument("--repeats", type=int, default=30, help="of a regression (30)")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of a regression ({ROWS})")
    parser.add_argument("--only", default="", help="run the tables whose title contains this")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is too large")
    parser.add_argument("--out", type=Path, help="write seconds by contender to this JSON file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
