"""One long chain: an ELBO step of TridiagonalGuide against one of DVIGuide.

    OMP_NUM_THREADS=1 python benchmarks/long_chain.py [--size 10000000] [--host numpyro]

A latent vector with a standard normal prior and nothing observed, so that a step is what the guide
costs: the ELBO in closed form, and the host's ``Trace_ELBO`` by one draw, each with its gradients.
Every contender runs in a process of its own; the smallest of a few times is reported, the largest
resident set, and by how many floats for each element that grows from half of the size.
"""

from __future__ import annotations

import argparse
import resource
import sys

import hosts
from timing import in_processes, measure

REPEATS, LIMIT = 5, 4.0
GUIDES = ("DVIGuide", "TridiagonalGuide")
OBJECTIVES = ("DeterministicELBO", "Trace_ELBO")


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    print(f"{options.size} elements, {options.host}")
    print(f"{'':37s} {'s':>7s} {'ratio':>6s} {'MiB':>7s} {'floats':>8s}")
    ratios = [ratio for objective in OBJECTIVES for ratio in table(options, objective)]
    if options.check and max(ratios) > LIMIT:
        sys.exit(f"more than {LIMIT:g} times the mean-field guide")


def table(options: argparse.Namespace, objective: str) -> list[float]:
    """The ratios of the times of an objective to that of the mean-field guide."""
    times = []
    for guide in GUIDES:
        sizes = options.size, options.size // 2
        contenders = [(options.host, guide, objective, size) for size in sizes]
        (seconds, memory), (_, half) = in_processes(measured, contenders)
        times.append(seconds)
        ratio, growth = seconds / times[0], (memory - half) / (options.size / 2 * 4 / 2**20)
        name = f"{objective} + {guide}"
        print(f"{name:37s} {seconds:7.3f} {ratio:6.2f} {memory:7.0f} {growth:8.1f}")
    return [seconds / times[0] for seconds in times]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--host", "--check")
    parser.add_argument("--size", type=int, default=10_000_000, help="elements (%(default)s)")
    return parser.parse_args(arguments)


def measured(name: str, guide: str, objective: str, size: int) -> tuple[float, float]:
    """Seconds of a step, and the MiB of its process."""
    host = hosts.load(name)

    def model() -> None:
        prior = host.dist.Normal(0.0, 1.0).expand([size])
        host.sample("w", prior.to_event(1))

    package = host.package if hasattr(host.package, objective) else host.infer
    elbo = getattr(package, objective)()
    step, _ = host.elbo_step(elbo, getattr(host.package, guide), model, ())
    seconds = measure({guide: step}, REPEATS)[guide]
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
