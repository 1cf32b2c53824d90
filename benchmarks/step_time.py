"""Time of one ELBO with its gradient: closed form against the host's sampled ELBO.

    OMP_NUM_THREADS=1 python benchmarks/step_time.py [--backend numpyro] [--check] [--threads 2]

A 13-50-1 network on mini-batches of 64 with TraceMeanField_ELBO and AutoNormal (one sample) as the
reference, and a 784-400-400-10 classifier on batches of 128 with a plain network's forward and
backward pass as the reference. The classifier is also compared with what no step can do without,
see :mod:`step_limits`, and this ratio alone is limited. All contenders of a table run in turn in
one process. In Pyro the minimum over the repeats is reported, since whatever disturbs a run makes
it slower; in NumPyro, where everything runs under jax.jit, the median. Compiling takes place before
and is reported apart, in NumPyro as a ratio to compiling Trace_ELBO with AutoNormal.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

from timing import report


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if options.backend == "numpyro" and options.threads:
        # XLA makes one thread for each processor that it may use when it starts
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, processors[: options.threads])
    report(importlib.import_module(f"step_time_{options.backend}").tables(options), options)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=400, help="of the small network (400)")
    parser.add_argument("--threads", type=int, help="PyTorch: 1 by default; XLA: all processors")
    parser.add_argument("--small-only", action="store_true", help="leave the classifier out")
    parser.add_argument("--no-compiled", action="store_true", help="Pyro: no compiled=True")
    parser.add_argument("--no-validation", action="store_true", help="Pyro's validation off")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is too large")
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="pyro")
    parser.add_argument("--out", type=Path, help="write seconds by contender to this JSON file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
