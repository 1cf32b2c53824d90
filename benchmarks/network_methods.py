"""L-BFGS against Adam in the same time, on a network for one of the UCI regressions.

    python benchmarks/network_methods.py NAME.npz [--host numpyro] [--check]

The file holds X [N, D] and y [N]. The network has 50 ReLUs and one output, all rows in every step.
"""

import statistics
import sys
import time

import harness
import numpy as np
from models import network_regression

HIDDEN, SEEDS = 50, 10


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--host --check file")
    host = harness.load(options.host)
    parts = [np.asarray(part, np.float32) for part in harness.read(options.file, "X", "y")]
    data = [host.array(part) for part in harness.standardised(*parts)]
    losses = [compared(host, data, seed) for seed in range(SEEDS)]
    ours, adam = map(statistics.median, zip(*losses, strict=True))
    wins = sum(one < other for one, other in losses)
    print(f"median L-BFGS {ours:.2f}, Adam {adam:.2f}; L-BFGS lower for {wins} of {SEEDS} seeds")
    sys.exit("Adam reaches a lower loss" if options.check and ours >= adam else 0)


def compared(host, data, seed):
    """Losses after L-BFGS, and after Adam in the same time; prints a row."""
    model, start = network_regression(host, HIDDEN), []
    ours = harness.fitted(host, model, *data, seed=seed, method="lbfgs")
    seconds = ours.seconds["fitting"]

    def late(progress):
        """Whether the time is up that began with the first call."""
        start.append(time.perf_counter())
        return start[-1] - start[0] > seconds

    options = {"steps": 10**7, "every": 5, "callback": late}
    adam = harness.fitted(host, model, *data, seed=seed, **options)
    print(
        f"seed {seed}: L-BFGS {ours.loss:.2f} after {ours.steps} steps, {seconds:.1f} s; "
        f"Adam {adam.loss:.2f} after {adam.steps} steps",
        flush=True,
    )
    return ours.loss, adam.loss


if __name__ == "__main__":
    main()
