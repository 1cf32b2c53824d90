"""Speed of networks in closed form, on one thread, in processor time.

    OMP_NUM_THREADS=1 python benchmarks/net_speed.py [--host numpyro] [--port DVI] [--check]

1. an update of a 13-50-2 network of heteroscedastic regression beside `TraceMeanField_ELBO` with
   `AutoNormal`; in NumPyro 200 of them in one scan; in Pyro also the first step with compiled=True;
2. one ELBO of full covariance with its gradients of 13-d-d-2, by width and by batch, beside a
   checkout of https://github.com/markovalexander/DVI, if `--port` names one;
3. the same of other activations beside relu;
4. its growth with the rows of 13-50-2, and with large batches of 13-50-50-2.

All contenders of a size run in turn in one process. Of the repeats the minimum counts in Pyro,
since whatever disturbs a run makes it slower, and the median in NumPyro; both are written down.
`--check` fails where a ratio, a time or an exponent is above its limit. docs/how_fast.py makes a
page of what `--out` writes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import hosts
import models
from net_speed_rows import Growth, Measured, Row, as_json, compared, exceeded, timed
from timing import COMPILED, REFERENCE, Step, empty_cache, in_processes, processor_seconds

BATCH, WIDTH = 32, 100
WIDTHS, BATCHES, ROWS = (50, 100, 200), (16, 32, 64, 128), (100, 1000, 10_000, 100_000)
PORT = "PyTorch port of DVI"
PORT_LIMITS = {"pyro": 0.8, "numpyro": 0.6}
BATCH_EXPONENT = 1.1
LARGE_BATCHES, LARGE_EXPONENT = (1024, 4096), 1.07  # 4.4 times the time
ACTIVATIONS = ("relu", "gelu", "elu", "silu", "softplus", "tanh", "sigmoid", "leaky_relu")
FULL, DIAGONAL = "full", "diagonal"
UPDATE_LIMITS = {
    "pyro": {FULL: 0.8, DIAGONAL: 0.8, FULL + COMPILED: 0.11, DIAGONAL + COMPILED: 0.11},
    "numpyro": {FULL: 1.0, DIAGONAL: 1.0},
}
SCANNED, FIRST_STEP = 200, 15.0  # updates at once in NumPyro; seconds
ACTIVATION_LIMITS = dict.fromkeys(("gelu", "elu", "silu", "softplus"), 2.0)


def main(arguments: list[str] | None = None) -> None:
    options, results = parse(arguments), []
    host = hosts.load(options.host, threads=1)
    with host.own_parameters():
        for name, part in PARTS.items():
            for item in part(host, options) if options.only in (None, name) else ():
                print(item, flush=True)
                results.append(item)
    head = {"backend": options.host, "machine": hosts.described(options.host)}
    hosts.write(options.out, head | as_json(results))
    if options.check and (slow := exceeded(results)):
        sys.exit("too slow:\n" + "\n".join(slow))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--host", "--check", "--out")
    parser.add_argument("--port", type=Path, help="checkout of the PyTorch port of DVI")
    parser.add_argument("--repeats", type=int, default=40, help="of the large networks (40)")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--largest", type=int, default=max(ROWS), help="size that is tried")
    parser.add_argument("--no-compiled", action="store_true", help="Pyro: no compiled=True")
    return parser.parse_args(arguments)


def updates(host: ModuleType, options: argparse.Namespace) -> Iterator[Row]:
    """Updates by Adam; in Pyro also losses with gradients, which its limits are of."""
    limits = UPDATE_LIMITS[options.host]
    what, data = "13-50-2, batch 64", (host.normal(0, 64, 13), host.normal(1, 64))
    model = models.two_heads(host, host.network((13, 50, 2)))
    if options.host == "numpyro":
        make = partial(host.updates, SCANNED)
        scans = timed(_made(make, _contenders(host, False), model, data), options.repeats)
        each = {name: scan.part(SCANNED) for name, scan in scans.items()}
        yield from compared(f"{what}, update ({SCANNED} in a scan)", host.BY, each, limits)
        return
    contenders = _contenders(host, not options.no_compiled)
    gradients = timed(_made(host.elbo_step, contenders, model, data), 10 * options.repeats)
    yield from compared(f"{what}, loss and gradients", host.BY, gradients, limits)
    by_adam = timed(_made(host.update, contenders, model, data), 10 * options.repeats)
    yield from compared(f"{what}, update with Pyro's Adam", host.BY, by_adam, {})
    if not options.no_compiled:
        ours, reference = in_processes(_first_step, [(True,), (False,)])
        what = "13-50-1, batch 64, first step"
        yield Row(what, ours, host.BY, reference, FIRST_STEP, in_seconds=True)


def _contenders(host: ModuleType, compiled: bool) -> dict[str, tuple[Any, Callable]]:
    """Objectives and guides by name."""
    result = {REFERENCE: models.reference(host, REFERENCE)}
    result |= {name: models.closed_form(host, name) for name in (FULL, DIAGONAL)}
    if compiled:
        for name in (FULL, DIAGONAL):
            result[name + COMPILED] = models.closed_form(host, name, compiled=True)
    return result


def _made(make: Callable, contenders: dict, model: Callable, data: tuple) -> dict[str, Step]:
    return {name: make(*pair, model, data)[0] for name, pair in contenders.items()}


def _first_step(compiled: bool) -> Measured:
    """Processor seconds of the first step in Pyro, alone in its process, compilers included."""
    host = hosts.load("pyro")
    name = "compiled=True" if compiled else "TraceMeanField_ELBO"
    with empty_cache(), host.own_parameters():
        model = models.regression(host, host.network((13, 50, 1)))
        ours = models.closed_form(host, FULL, compiled=True)
        elbo, guide = ours if compiled else models.reference(host, REFERENCE)
        data = host.normal(0, 64, 13), host.normal(1, 64)
        start = processor_seconds()
        elbo.loss_and_grads(model, guide(model), *data)
        seconds = processor_seconds() - start
    return Measured(name, seconds, seconds)


def layer_step(
    host: ModuleType, sizes: tuple[int, ...], rows: int, activation: str = "relu"
) -> Step:
    """One ELBO of full covariance with its gradients."""
    model = models.two_heads(host, host.network(sizes, host.activation(activation)))
    pair, data = models.closed_form(host, FULL), (host.normal(0, rows, 13), host.normal(1, rows))
    return host.elbo_step(*pair, model, data, init_loc_fn=host.by_fan_in)[0]


def widths(host: ModuleType, options: argparse.Namespace) -> Iterator[Row | Growth]:
    what = f"13-d-d-2, full covariance, batch {BATCH}"
    shapes = {d: ((13, d, d, 2), BATCH) for d in WIDTHS}
    yield from _grown(options, Growth(what, "width", host.NAME, host.BY), shapes)


def batches(host: ModuleType, options: argparse.Namespace) -> Iterator[Row | Growth]:
    what = f"13-{WIDTH}-{WIDTH}-2, full covariance"
    shapes = {batch: ((13, WIDTH, WIDTH, 2), batch) for batch in BATCHES}
    ours = Growth(what, "batch", host.NAME, host.BY, limit=BATCH_EXPONENT)
    yield from _grown(options, ours, shapes)


def rows(host: ModuleType, options: argparse.Namespace) -> Iterator[Row | Growth]:
    shapes = {count: ((13, 50, 2), count) for count in ROWS}
    alone = argparse.Namespace(**vars(options) | {"port": None})
    ours = Growth("13-50-2, full covariance", "rows", host.NAME, host.BY)
    yield from _grown(alone, ours, shapes)


def large_batches(host: ModuleType, options: argparse.Namespace) -> Iterator[Row | Growth]:
    shapes = {batch: ((13, 50, 50, 2), batch) for batch in LARGE_BATCHES}
    alone = argparse.Namespace(**vars(options) | {"port": None})
    what = "13-50-50-2, full covariance"
    ours = Growth(what, "batch", host.NAME, host.BY, limit=LARGE_EXPONENT)
    yield from _grown(alone, ours, shapes)


def activations(host: ModuleType, options: argparse.Namespace) -> Iterator[Row | Growth]:
    sizes = (13, WIDTH, WIDTH, 2)
    contenders = {name: layer_step(host, sizes, BATCH, name) for name in ACTIVATIONS}
    times = timed(contenders, options.repeats)
    what = f"13-{WIDTH}-{WIDTH}-2, full covariance, batch {BATCH}"
    yield from compared(what, host.BY, times, ACTIVATION_LIMITS)


PARTS = {
    "updates": updates,
    "widths": widths,
    "batches": batches,
    "activations": activations,
    "rows": rows,
    "large batches": large_batches,
}


Shape = tuple[tuple[int, ...], int]  # sizes of the layers, and number of rows


def _grown(
    options: argparse.Namespace, ours: Growth, shapes: dict[int, Shape]
) -> Iterator[Row | Growth]:
    """A row for each size, beside the port if it is there; then the growth of each contender."""
    shapes = {size: shape for size, shape in shapes.items() if size <= options.largest}
    times = list(in_processes(_measured, [(options, shape) for shape in shapes.values()]))
    for size, (*reference, measured) in zip(shapes, times, strict=True):
        limit = PORT_LIMITS[options.host] if reference else None
        yield Row(f"{ours.what}, {ours.size} {size}", measured, ours.by, *reference, limit=limit)
    for contenders in zip(*times, strict=True):
        name, seconds = contenders[0].name, tuple(getattr(part, ours.by) for part in contenders)
        limit = ours.limit if name == ours.name else None
        yield replace(ours, name=name, sizes=tuple(shapes), seconds=seconds, limit=limit)


def _measured(options: argparse.Namespace, shape: Shape) -> list[Measured]:
    """The port first, if it is there; with the peaks of memory where they are known."""
    host = hosts.load(options.host, threads=1)
    makers = {host.NAME: partial(layer_step, host)}
    if options.port is not None:
        import net_speed_port

        makers = {PORT: net_speed_port.maker(options.port), **makers}
    with host.own_parameters():
        contenders = {name: make(*shape) for name, make in makers.items()}
        times = timed(contenders, options.repeats)
        return [
            replace(times[name], mebibytes=_mebibytes(host.peak(step)))
            for name, step in contenders.items()
        ]


def _mebibytes(count: int | None) -> float | None:
    return None if count is None else count / 2**20


if __name__ == "__main__":
    main()
