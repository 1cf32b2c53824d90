"""Approximations of real posteriors against reference draws: means, deviations, correlations, time.

    python benchmarks/posteriordb.py DIRECTORY [--host numpyro] [--nuts] [--table FILE.md]

The directory holds a JSON file for each posterior of posteriordb, with its data and its reference.
What the library refuses stays among the rows, with its reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import hosts
import numpy as np
from posteriordb_report import (
    DRAWS,
    MEAN_FIELD,
    MULTIVARIATE,
    NORMAL,
    NUTS,
    RESPONSE,
    Attempt,
    compared,
    picture,
    table,
)
from posteriors_models import Draws, Posterior

STEPS, FIRST_RATE, LAST_RATE = 20_000, 0.05, 0.0005  # of Adam; its rate falls geometrically
CHAINS, DRAWS_OF_NUTS = 4, 1000  # warm-up and sampling each
PATIENCE = 300.0  # seconds


def main() -> None:
    parser = hosts.parser(__doc__, "--host", "--only")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nuts", action="store_true", help="the host's NUTS beside them")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of Adam ({STEPS})")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds for a method")
    parser.add_argument("--table", type=Path, help="write a table in Markdown")
    parser.add_argument("--picture", type=Path, help="draw the ratios of deviations")
    options = parser.parse_args()
    paths = sorted(path for path in options.directory.glob("*.json") if options.only in path.stem)
    if not paths:
        parser.error(f"no posterior has {options.only!r} in its name")
    host = hosts.load(options.host)
    rows = {}
    for path in paths:
        host.forget()
        rows[path.stem] = _row(host, Posterior.read(path), options)
        if options.table:  # after each: a run takes half an hour
            options.table.write_text(table(rows))
    if options.picture:
        picture(rows, options.picture)


def _row(host: ModuleType, posterior: Posterior, options: argparse.Namespace) -> dict[str, Attempt]:
    """What every method gives; prints each as it comes."""
    print(posterior.name, flush=True)
    row = {}
    for method, attempt in _attempts(host, posterior, options):
        row[method] = attempt.then(partial(compared, posterior))
        print(f"    {method:24s}{row[method]}", flush=True)
    return row


def _attempts(
    host: ModuleType, posterior: Posterior, options: argparse.Namespace
) -> Iterator[tuple[str, Attempt]]:
    """Draws by every method."""
    tried = partial(Attempt(partial(posterior.model, host)).then, patience=options.patience)
    fitted = tried(partial(_fitted, host))
    if fitted.value is not None and not fitted.value[1].converged:
        fitted = replace(fitted, reason=fitted.value[1].reason)
    yield MEAN_FIELD, fitted.then(partial(_mean_field, host))
    yield RESPONSE, fitted.then(partial(_by_response, host), options.patience)
    for guide in (NORMAL, MULTIVARIATE):
        yield guide, tried(partial(_automatic, host, guide, options.steps))
    if options.nuts:
        chains = tried(lambda make: host.nuts(make, CHAINS, DRAWS_OF_NUTS))
        if chains.value is not None and _disagree(chains.value):
            chains = replace(chains, reason="its chains disagree")
        yield NUTS, chains.then(_joined)


def _fitted(host: ModuleType, make: Callable[[], Callable]) -> tuple[Callable, Any]:
    """Model and fit, by Newton's method."""
    with host.doubles():
        model = make()
        return model, hosts.fitted(host, model, method="newton", float64=True)


def _mean_field(host: ModuleType, fitted: tuple[Callable, Any]) -> Draws:
    _, fit = fitted
    with host.doubles():
        return host.posterior_draws(fit.guide, fit.params, DRAWS)


def _by_response(host: ModuleType, fitted: tuple[Callable, Any]) -> Draws:
    model, fit = fitted
    with host.doubles():
        options = {"params": fit.params, "float64": True}
        response = host.package.linear_response(model, fit.guide, **options)
        return response.sample(DRAWS, *host.randomness(1))


def _automatic(host: ModuleType, name: str, steps: int, make: Callable[[], Callable]) -> Draws:
    """By a guide of the host."""
    with host.doubles():
        guide, params = host.automatic(name, make, steps, partial(_rate, steps))
        return host.posterior_draws(guide, params, DRAWS)


def _rate(steps: int, step: Any) -> Any:
    return FIRST_RATE * (LAST_RATE / FIRST_RATE) ** (step / steps)


def _disagree(chains: list[Draws]) -> bool:
    """Whether means of chains differ by half of a standard deviation within them."""
    for name in chains[0]:
        values = np.stack([chain[name] for chain in chains])
        if np.any(np.ptp(values.mean(1), axis=0) > 0.5 * values.std(1).mean(0)):
            return True
    return False


def _joined(chains: list[Draws]) -> Draws:
    return {name: np.concatenate([chain[name] for chain in chains]) for name in chains[0]}


if __name__ == "__main__":
    main()
