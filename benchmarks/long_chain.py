"""One long chain: an ELBO step of TridiagonalGuide against one of DVIGuide.

    OMP_NUM_THREADS=1 python benchmarks/long_chain.py [--size 10000000] [--backend numpyro]

A latent vector with a standard normal prior and nothing observed, so that a step is what the guide
costs: the ELBO in closed form, and the host's ``Trace_ELBO`` by one draw, each with its gradients.
Every contender runs in a process of its own; the smallest of a few times is reported, the largest
resident set, and by how many floats for each element that grows from half of the size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

REPEATS, LIMIT = 5, 4.0
GUIDES = ("DVIGuide", "TridiagonalGuide")
OBJECTIVES = ("DeterministicELBO", "Trace_ELBO")


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if options.contender:
        print(json.dumps(measured(options)))
        return
    print(f"{options.size} elements, {options.backend}")
    print(f"{'':37s} {'s':>7s} {'ratio':>6s} {'MiB':>7s} {'floats':>8s}")
    ratios = [ratio for objective in OBJECTIVES for ratio in table(options, objective)]
    if options.check and max(ratios) > LIMIT:
        sys.exit(f"more than {LIMIT:g} times the mean-field guide")


def table(options: argparse.Namespace, objective: str) -> list[float]:
    """The ratios of the times of an objective to that of the mean-field guide."""
    found = []
    for guide in GUIDES:
        seconds, memory = spawned(options, guide, objective, options.size)
        half = spawned(options, guide, objective, options.size // 2)[1]
        found.append(seconds)
        ratio, growth = seconds / found[0], (memory - half) / (options.size / 2 * 4 / 2**20)
        name = f"{objective} + {guide}"
        print(f"{name:37s} {seconds:7.3f} {ratio:6.2f} {memory:7.0f} {growth:8.1f}")
    return [seconds / found[0] for seconds in found]


def spawned(
    options: argparse.Namespace, guide: str, objective: str, size: int
) -> tuple[float, float]:
    """Seconds of a step, and the MiB of its process."""
    command = [sys.executable, __file__, "--backend", options.backend, "--size", str(size)]
    command += ["--contender", guide, objective]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=10_000_000, help="elements (%(default)s)")
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="pyro")
    parser.add_argument("--check", action="store_true", help=f"fail above {LIMIT:g}")
    parser.add_argument("--contender", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def measured(options: argparse.Namespace) -> tuple[float, float]:
    make = in_pyro if options.backend == "pyro" else in_numpyro
    step = make(*options.contender, options.size)
    step()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return min(seconds), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_pyro(guide: str, objective: str, size: int) -> Callable[[], Any]:
    import pyro
    import pyro.distributions as dist
    import torch

    import pyro_moments

    torch.set_num_threads(1)

    def model() -> None:
        pyro.sample("w", dist.Normal(torch.zeros(()), 1.0).expand([size]).to_event(1))

    package = pyro_moments if hasattr(pyro_moments, objective) else pyro.infer
    elbo = getattr(package, objective)()
    bound = getattr(pyro_moments, guide)(model)

    def step() -> None:
        bound.zero_grad()
        elbo.loss_and_grads(model, bound)

    return step


def in_numpyro(guide: str, objective: str, size: int) -> Callable[[], Any]:
    import jax
    import numpyro
    import numpyro.distributions as dist

    import numpyro_moments

    def model() -> None:
        numpyro.sample("w", dist.Normal(0.0, 1.0).expand([size]).to_event(1))

    package = numpyro_moments if hasattr(numpyro_moments, objective) else numpyro.infer
    elbo = getattr(package, objective)()
    bound = getattr(numpyro_moments, guide)(model)
    svi = numpyro_moments.SVI(model, bound, elbo)
    params = svi.optim.get_params(svi.init(jax.random.key(0)).optim_state)

    @jax.jit
    def gradient(params: Any) -> Any:
        def loss(params: Any) -> Any:
            values = svi.constrain_fn(params)
            return elbo.loss(jax.random.key(1), values, model, bound)

        return jax.value_and_grad(loss)(params)

    return lambda: jax.block_until_ready(gradient(params))


if __name__ == "__main__":
    main()
