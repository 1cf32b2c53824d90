"""Peak memory of one full-covariance ELBO with its gradient.

    OMP_NUM_THREADS=1 python benchmarks/peak_memory.py

A 13-256-256-2 network (heteroscedastic regression) on batches of 32. What PyTorch's allocator hands
out and gets back during a loss with its gradients is recorded by the profiler; the largest sum
above what was there before is reported in units of one batch of covariances, B·d² floats.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyro
import pyro.distributions as dist
import torch
from step_time_pyro import Network
from torch import Tensor
from torch.autograd.profiler import profile

from pyro_moments import DeterministicELBO, DVIGuide

BATCH, INPUTS, HIDDEN = 32, 13, 256
UNIT = BATCH * HIDDEN**2 * 4
LIMIT = 16.0  # live tensors


class Heteroscedastic(Network):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        out = self.outputs(x)
        with pyro.plate("data", len(x)):
            scale = torch.exp(0.5 * out[..., 1])
            return pyro.sample("obs", dist.Normal(out[..., 0], scale), obs=y)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.manual_seed(0)
    data = torch.randn(BATCH, INPUTS), torch.randn(BATCH)
    with pyro.settings.context(module_local_params=True):
        model = Heteroscedastic(INPUTS, HIDDEN, HIDDEN, 2)
        guide = DVIGuide(model, init_scale=0.05)
        full = partial(DeterministicELBO, covariance="full")
        contenders = {"eager, exact": full(), "eager, dvi": full(rules="dvi")}
        if options.compiled:
            contenders["compiled, exact"] = full(compiled=True)
        peaks = {
            name: peak(partial(elbo.loss_and_grads, model, guide, *data)) / UNIT
            for name, elbo in contenders.items()
        }
    show(peaks)
    if options.out:
        options.out.write_text(json.dumps(peaks, indent=2) + "\n")
    if options.check and max(peaks.values()) > LIMIT:
        sys.exit(f"more than {LIMIT:g} live tensors")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiled", action="store_true", help="compiled=True too (a minute)")
    parser.add_argument("--check", action="store_true", help=f"fail above {LIMIT:g} live tensors")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    return parser.parse_args(arguments)


def peak(step: Callable[[], object]) -> int:
    """Bytes that one loss with its gradients needs at most, above what is there before."""
    step()  # the guide makes its parameters, and their gradients
    with profile(profile_memory=True) as profiler:
        step()
    events = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    live = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        highest = max(highest, live)
    return highest


def show(peaks: dict[str, float]) -> None:
    unit = f"B·d² floats ({UNIT / 2**20:.0f} MiB)"
    print(f"{'13-256-256-2, batch 32':26s} {unit:>24s} {'limit':>7s}")
    for name, tensors in peaks.items():
        print(f"{name:26s} {tensors:24.1f} {LIMIT:7.0f}")
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"largest resident set of the process: {largest:.0f} MiB")


if __name__ == "__main__":
    main()
