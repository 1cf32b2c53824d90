"""One long chain: an ELBO step of TridiagonalGuide against one of DVIGuide.

    OMP_NUM_THREADS=1 python benchmarks/long_chain.py [--size 10000000] [--host numpyro]

A latent vector with a standard normal prior and nothing observed, so that a step is what the guide
costs: the ELBO in closed form, and the host's ``Trace_ELBO`` by one draw, each with its gradients.
Every contender runs in a process of its own; the smallest of a few times is reported, the largest
resident set, and by how many floats for each element that grows from half of the size.
"""

import resource
import sys
import time

import harness
from models import standard

REPEATS, LIMIT = 5, 4.0
GUIDES = ("DVIGuide", "TridiagonalGuide")


def main(arguments=None):
    size = (10_000_000, "elements")
    options = harness.parse(__doc__, arguments, "--host --check", size=size)
    print(f"{options.size} elements, {options.host}")
    print(f"{'':37s} {'s':>7s} {'ratio':>6s} {'MiB':>7s} {'floats':>8s}")
    ratios = [row for name in ("DeterministicELBO", "Trace_ELBO") for row in table(options, name)]
    if options.check and max(ratios) > LIMIT:
        sys.exit(f"more than {LIMIT:g} times the mean-field guide")


def table(options, objective):
    """The ratios of the times of an objective to that of the mean-field guide."""
    times = []
    for guide in GUIDES:
        sizes = options.size, options.size // 2
        contenders = [(options.host, guide, objective, size) for size in sizes]
        (seconds, memory), (_, half) = harness.in_processes(measured, contenders)
        times.append(seconds)
        ratio, growth = seconds / times[0], (memory - half) / (options.size / 2 * 4 / 2**20)
        name = f"{objective} + {guide}"
        print(f"{name:37s} {seconds:7.3f} {ratio:6.2f} {memory:7.0f} {growth:8.1f}")
    return [seconds / times[0] for seconds in times]


def measured(name, guide, objective, size):
    """Seconds of a step, and the MiB of its process."""
    host = harness.load(name)

    def model():
        host.sample("w", standard(host)([size]))

    package = host.package if hasattr(host.package, objective) else host.infer
    elbo = getattr(package, objective)()
    step, _ = host.elbo_step(elbo, getattr(host.package, guide), model, ())
    seconds = harness.timed({guide: step}, REPEATS, time.perf_counter)[guide].minimum
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
