"""Peak memory of one full-covariance ELBO with its gradient.

    OMP_NUM_THREADS=1 python benchmarks/peak_memory.py

A 13-256-256-2 network (heteroscedastic regression) on batches of 32. What PyTorch's allocator hands
out and gets back during a loss with its gradients is recorded by the profiler; the largest sum
above what was there before is reported in units of one batch of covariances, B·d² floats.
"""

import resource
from functools import partial

import harness
import models

BATCH, HIDDEN = 32, 256
UNIT, LIMIT = BATCH * HIDDEN**2 * 4, 16.0  # live tensors


def main(arguments=None):
    too = (False, "compiled=True too (a minute)")
    options = harness.parse(__doc__, arguments, "--check --out", compiled=too)
    options.host = "pyro"
    harness.run(options, peaks, lambda _, found: dict(found), above)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"tensors of {UNIT / 2**20:.0f} MiB; largest resident set: {largest:.0f} MiB")


def peaks(host, options):
    host.fresh()
    full = partial(host.package.DeterministicELBO, covariance="full")
    data = models.normals(host, BATCH)
    model = models.observed(host, host.network((13, HIDDEN, HIDDEN, 2)), "heteroscedastic")
    guide = host.package.DVIGuide(model, init_scale=0.05)
    contenders = {"eager, exact": full(), "eager, dvi": full(rules="dvi")}
    if options.compiled:
        contenders["compiled, exact"] = full(compiled=True)
    for name, elbo in contenders.items():
        yield name, host.peak(partial(elbo.loss_and_grads, model, guide, *data)) / UNIT


def above(found):
    return [
        f"{name}: {tensors:.1f} > {LIMIT:g} tensors" for name, tensors in found if tensors > LIMIT
    ]


if __name__ == "__main__":
    main()
