"""Twelve models: the ELBO in closed form against the host's Trace_ELBO.

    OMP_NUM_THREADS=1 python benchmarks/model_accuracy.py --check
    OMP_NUM_THREADS=1 python benchmarks/model_accuracy.py --host numpyro --check

Each model is trained with the deterministic ELBO; then both ELBOs are evaluated with the same
guide, Trace_ELBO as the mean over many draws. Agreement means: within three standard errors of
that mean plus one per cent of it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import hosts
from twelve_models import twelve_models

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


def models(host: str) -> dict[str, tuple[Callable, tuple[Any, ...]]]:
    """The twelve models of a host, with their data."""
    return twelve_models(hosts.load(host))


def compare(
    host: ModuleType, name: str, model: Callable, data: tuple[Any, ...], *, samples: int, steps: int
) -> Row:
    loss, draws = host.losses(model, data, samples, steps)
    return Row(name, -loss, -float(draws.mean()), float(draws.std()) / math.sqrt(samples))


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    host, rows = hosts.load(options.host), []
    print("| model | ELBO | Trace_ELBO | difference | allowed |\n|---|---|---|---|---|")
    for name, (model, data) in models(options.host).items():
        row = compare(host, name, model, data, samples=options.samples, steps=options.steps)
        print(
            f"| {name} | {row.elbo:.2f} | {row.sampled:.2f} ± {row.standard_error:.2f} "
            f"| {row.elbo - row.sampled:+.2f} | {row.allowed:.2f} |",
            flush=True,
        )
        rows.append(row)
    found = {row.pop("name"): row for row in map(asdict, rows)}
    hosts.write(options.out, {options.host: found})
    failed = [row.name for row in rows if not row.agrees]
    if options.check and failed:
        raise SystemExit(f"no agreement: {', '.join(failed)}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--host", "--check", "--out")
    parser.add_argument("--samples", type=int, default=10_000, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="of training (%(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
