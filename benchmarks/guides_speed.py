"""Time of a step of every guide and objective by its defaults, on one thread.

    OMP_NUM_THREADS=1 python benchmarks/guides_speed.py [--host numpyro] [--check]

A 13-50-2 network of heteroscedastic regression on batches of 64. MC dropout is measured beside a
plain training step of torch or flax with dropout, all else beside `TraceMeanField_ELBO` with
`AutoNormal` and one draw. In Pyro a step is a loss with its gradients, in NumPyro one of 50 updates
in a scan. All run in turn in one process, in processor time; of the repeats the minimum counts in
Pyro and the median in NumPyro. `--check` fails where a ratio is above its limit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import hosts
import models
from net_speed_rows import Row, as_json, compared, exceeded, timed
from plain_dropout import plain_dropout
from timing import COMPILED, REFERENCE, Step

SCANNED, SIZES, DROPPED = 50, (13, 50, 2), 0.1
WHAT = "13-50-2, batch 64"
PLAIN = "a plain network with dropout"
DROPOUT, CHAIN = "MCDropoutGuide", "TridiagonalGuide"
DIAGONAL, FULL = ", diagonal", ", full"
DENSE = "DVIGuide, 13-50-50-2, full"  # its second layer is dense, as the first one of dropout is
ENERGY, LARGE = "BBAlphaELBO", "13-50-50-2, batch 1024"
LARGE_DIAGONAL, LARGE_REFERENCE = f"DVIGuide, {LARGE}", f"AutoNormal, {LARGE}"
DRAWN = {count: f"DVIGuide, sampled, K = {count}" for count in (1, 10)}
BESIDE_PLAIN = {
    "pyro": {
        DROPOUT: 12,
        DROPOUT + COMPILED: 3,
        DROPOUT + DIAGONAL: 6,
        DROPOUT + DIAGONAL + COMPILED: 0.6,
    },
    "numpyro": {DROPOUT: 6, DROPOUT + DIAGONAL: 1.5},
}
BESIDE_SAMPLED = {
    "pyro": {"DVIGuide": 0.9, CHAIN: 2, ENERGY: 1.6, DRAWN[1]: 0.8, DRAWN[10]: 1.1},
    "numpyro": {CHAIN: 2, ENERGY: 2.5, DRAWN[1]: 1.2, DRAWN[10]: 9},
}
BESIDE_DENSE = {DROPOUT + FULL: 2}


def main(arguments: list[str] | None = None) -> None:
    parser = hosts.parser(__doc__, "--host", "--check", "--only", "--out")
    parser.add_argument("--repeats", type=int, default=40, help="of each contender (40)")
    parser.add_argument("--no-compiled", action="store_true", help="Pyro: no compiled=True")
    options = parser.parse_args(arguments)
    host, load = hosts.load(options.host, threads=1), os.getloadavg()
    compiled = options.host == "pyro" and not options.no_compiled
    with host.own_parameters():
        results = list(rows(host, options.repeats, compiled, options.only))
    machine = {**hosts.described(options.host), "load": load}
    hosts.write(options.out, {"backend": options.host, "machine": machine} | as_json(results))
    if options.check and (slow := exceeded(results)):
        sys.exit("too slow:\n" + "\n".join(slow))


def rows(host: ModuleType, repeats: int, compiled: bool, only: str) -> Iterator[Row]:
    """Contenders of which the names contain ``only``, beside their references; prints each."""
    data = host.normal(0, 64, SIZES[0]), host.normal(1, 64)
    steps = {PLAIN: plain_dropout(host, SCANNED, SIZES, DROPPED, data)}
    small, deep = (
        models.two_heads(host, host.network(sizes)) for sizes in (SIZES, (13, 50, 50, 2))
    )
    pairs = {REFERENCE: models.reference(host, REFERENCE), **contenders(host, compiled)}
    for name, pair in pairs.items():
        dense = name == DENSE and only in DROPOUT + FULL
        if only in name or name == REFERENCE or dense:
            steps[name] = step_of(host, pair, deep if name == DENSE else small, data)
    found = timed(steps, repeats)
    if host.NAME == "NumPyro" and only in LARGE_DIAGONAL:
        found |= timed(large(host), repeats)
    name = host.NAME.lower()
    groups = (
        (WHAT, PLAIN, BESIDE_PLAIN[name]),
        (WHAT, DENSE, BESIDE_DENSE),
        (WHAT, REFERENCE, BESIDE_SAMPLED[name]),
        (LARGE, LARGE_REFERENCE, {LARGE_DIAGONAL: 1.3}),
    )
    for what, reference, limits in groups:
        beside = {other: found[other] for other in (reference, *limits) if other in found}
        if reference in beside:
            for row in compared(f"{what}, beside {reference}", host.BY, beside, limits):
                print(row, flush=True)
                yield row


def large(host: ModuleType) -> dict[str, Step]:
    """A step of a large batch by diagonal covariance, and by one draw of the weights."""
    data = host.normal(0, 1024, SIZES[0]), host.normal(1, 1024)
    model = models.two_heads(host, host.network((13, 50, 50, 2)))
    elbo, guide = models.reference(host, REFERENCE)
    start = partial(guide, init_loc_fn=host.infer.init_to_median)  # scales overflow at others
    pairs = {LARGE_REFERENCE: (elbo, start), LARGE_DIAGONAL: models.closed_form(host, "diagonal")}
    return {name: step_of(host, pair, model, data) for name, pair in pairs.items()}


def contenders(host: ModuleType, compiled: bool) -> dict[str, tuple[Any, Callable]]:
    """Objectives and guides by name; where none is named, covariances are the guide's default."""
    package = host.package
    elbo, dropout = package.DeterministicELBO, package.MCDropoutGuide
    result: dict[str, tuple[Any, Callable]] = {
        "DVIGuide": (elbo(), package.DVIGuide),
        DROPOUT: (elbo(), dropout),
        DROPOUT + DIAGONAL: (elbo(covariance="diagonal"), dropout),
        DROPOUT + FULL: (elbo(covariance="full"), dropout),
        DENSE: (elbo(), package.DVIGuide),
        CHAIN: (elbo(), package.TridiagonalGuide),
        ENERGY: (package.BBAlphaELBO(0.5), package.DVIGuide),
    }
    for count, name in DRAWN.items():
        drawn = elbo(propagation="sampled", num_particles=count)
        result[name] = drawn, package.DVIGuide
    if compiled:
        result[DROPOUT + COMPILED] = elbo(compiled=True), dropout
        diagonal = elbo(covariance="diagonal", compiled=True)
        result[DROPOUT + DIAGONAL + COMPILED] = diagonal, dropout
    return result


def step_of(host: ModuleType, pair: tuple, model: Callable, data: tuple) -> Step:
    """A loss with its gradients in Pyro, some updates in NumPyro."""
    if host.NAME == "NumPyro":
        return host.updates(SCANNED, *pair, model, data)[0]
    return host.elbo_step(*pair, model, data)[0]


if __name__ == "__main__":
    main()
