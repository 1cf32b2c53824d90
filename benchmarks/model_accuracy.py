"""Twelve models: the ELBO in closed form against Pyro's Trace_ELBO.

    OMP_NUM_THREADS=1 python benchmarks/model_accuracy.py --check

Each model is trained with the deterministic ELBO; then both ELBOs are evaluated with the same
guide, Trace_ELBO as the mean over many draws. Agreement means: within three standard errors of
that mean plus one per cent of it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import pyro
import torch
from models import twelve_models
from pyro.infer import Trace_ELBO
from torch import Tensor

from pyro_moments import SVI, DeterministicELBO, DVIGuide

SHARE, STANDARD_ERRORS = 0.01, 3.0


@dataclass(frozen=True)
class Row:
    """One model: ELBO in closed form, mean of the sampled one, and its standard error."""

    name: str
    elbo: float
    sampled: float
    standard_error: float

    @property
    def allowed(self) -> float:
        return STANDARD_ERRORS * self.standard_error + SHARE * abs(self.sampled)

    @property
    def agrees(self) -> bool:
        return abs(self.elbo - self.sampled) <= self.allowed


def compare(
    name: str, model: Callable, data: tuple[Tensor, ...], *, samples: int, steps: int
) -> Row:
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    guide, elbo = DVIGuide(), DeterministicELBO()
    svi = SVI(model, guide, elbo)
    for _ in range(steps):
        svi.step(*data)
    sampled = Trace_ELBO()
    with torch.no_grad():
        draws = torch.tensor([-sampled.loss(model, guide, *data) for _ in range(samples)])
    error = draws.std().item() / math.sqrt(samples)
    return Row(name, -elbo.loss(model, guide, *data), draws.mean().item(), error)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(1)
    rows = []
    print("| model | ELBO | Trace_ELBO | difference | allowed |\n|---|---|---|---|---|")
    for name, (model, data) in twelve_models().items():
        row = compare(name, model, data, samples=options.samples, steps=options.steps)
        print(
            f"| {name} | {row.elbo:.2f} | {row.sampled:.2f} ± {row.standard_error:.2f} "
            f"| {row.elbo - row.sampled:+.2f} | {row.allowed:.2f} |",
            flush=True,
        )
        rows.append(row)
    failed = [row.name for row in rows if not row.agrees]
    if options.check and failed:
        raise SystemExit(f"no agreement: {', '.join(failed)}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=10_000, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="of training (%(default)s)")
    parser.add_argument("--check", action="store_true", help="fail unless all agree")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
