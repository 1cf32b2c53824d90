"""Peak memory of one full-covariance ELBO with its gradient.

    OMP_NUM_THREADS=1 python benchmarks/peak_memory.py

A 13-256-256-2 network (heteroscedastic regression) on batches of 32. What PyTorch's allocator hands
out and gets back during a loss with its gradients is recorded by the profiler; the largest sum
above what was there before is reported in units of one batch of covariances, B·d² floats.
"""

from __future__ import annotations

import argparse
import resource
import sys
from functools import partial

import host_pyro as host
import hosts
import models

from pyro_moments import DeterministicELBO, DVIGuide

BATCH, INPUTS, HIDDEN = 32, 13, 256
UNIT = BATCH * HIDDEN**2 * 4
LIMIT = 16.0  # live tensors


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    host.fresh()
    data = host.normal(0, BATCH, INPUTS), host.normal(1, BATCH)
    with host.own_parameters():
        model = models.two_heads(host, host.network((INPUTS, HIDDEN, HIDDEN, 2)))
        guide = DVIGuide(model, init_scale=0.05)
        full = partial(DeterministicELBO, covariance="full")
        contenders = {"eager, exact": full(), "eager, dvi": full(rules="dvi")}
        if options.compiled:
            contenders["compiled, exact"] = full(compiled=True)
        peaks = {
            name: host.peak(partial(elbo.loss_and_grads, model, guide, *data)) / UNIT
            for name, elbo in contenders.items()
        }
    show(peaks)
    hosts.write(options.out, peaks)
    if options.check and max(peaks.values()) > LIMIT:
        sys.exit(f"more than {LIMIT:g} live tensors")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--check", "--out")
    parser.add_argument("--compiled", action="store_true", help="compiled=True too (a minute)")
    return parser.parse_args(arguments)


def show(peaks: dict[str, float]) -> None:
    unit = f"B·d² floats ({UNIT / 2**20:.0f} MiB)"
    print(f"{'13-256-256-2, batch 32':26s} {unit:>24s} {'limit':>7s}")
    for name, tensors in peaks.items():
        print(f"{name:26s} {tensors:24.1f} {LIMIT:7.0f}")
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"largest resident set of the process: {largest:.0f} MiB")


if __name__ == "__main__":
    main()
