"""Speed of networks in closed form, on one thread, in processor time.

    OMP_NUM_THREADS=1 python benchmarks/net_speed.py [--backend numpyro] [--port DVI] [--check]

1. an update of a 13-50-2 network of heteroscedastic regression beside `TraceMeanField_ELBO` with
   `AutoNormal`; in NumPyro 200 of them in one scan; in Pyro also the first step with compiled=True;
2. one ELBO of full covariance with its gradients of 13-d-d-2, by width and by batch, beside a
   checkout of https://github.com/markovalexander/DVI, if `--port` names one;
3. the same of other activations beside relu;
4. its growth with the rows of 13-50-2.

All contenders of a size run in turn in one process. Of the repeats the minimum counts in Pyro,
since whatever disturbs a run makes it slower, and the median in NumPyro; both are written down.
`--check` fails where a ratio, a time or an exponent is above its limit. docs/how_fast.py makes a
page of what `--out` writes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import machine
from net_speed_rows import Growth, Measured, Row, as_json, compared, exceeded, timed

BATCH, WIDTH = 32, 100
WIDTHS, BATCHES, ROWS = (50, 100, 200), (16, 32, 64, 128), (100, 1000, 10_000, 100_000)
PORT = "PyTorch port of DVI"
PORT_LIMITS = {"pyro": 0.8, "numpyro": 0.6}
BATCH_EXPONENT = 1.1
ACTIVATIONS = ("relu", "gelu", "elu", "silu", "softplus", "tanh", "sigmoid", "leaky_relu")
ACTIVATION_LIMITS = dict.fromkeys(("gelu", "elu", "silu", "softplus"), 2.0)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if options.backend == "numpyro":
        machine.one_processor()
    host = importlib.import_module(f"net_speed_{options.backend}")
    found = []
    for item in measurements(host, options):
        print(item, flush=True)
        found.append(item)
    if options.out:
        head = {"backend": options.backend, "machine": machine.described(options.backend)}
        options.out.write_text(json.dumps(head | as_json(found), indent=2) + "\n")
    if options.check and (slow := exceeded(found)):
        sys.exit("too slow:\n" + "\n".join(slow))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="pyro")
    parser.add_argument("--port", type=Path, help="checkout of the PyTorch port of DVI")
    parser.add_argument("--repeats", type=int, default=40, help="of the large networks (40)")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--largest", type=int, default=max(ROWS), help="size that is tried")
    parser.add_argument("--no-compiled", action="store_true", help="Pyro: no compiled=True")
    parser.add_argument("--check", action="store_true", help="fail above a limit")
    parser.add_argument("--out", type=Path, help="write what was measured to this JSON file")
    return parser.parse_args(arguments)


def measurements(host: ModuleType, options: argparse.Namespace) -> Iterator[Row | Growth]:
    for name, part in PARTS.items():
        if options.only in (None, name):
            yield from part(host, options)


def updates(host: ModuleType, options: argparse.Namespace) -> Iterator[Row | Growth]:
    yield from host.updates(options)


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


def activations(host: ModuleType, options: argparse.Namespace) -> Iterator[Row | Growth]:
    sizes = (13, WIDTH, WIDTH, 2)
    steps = {name: host.layer_step(sizes, BATCH, name) for name in ACTIVATIONS}
    found = timed(steps, options.repeats)
    what = f"13-{WIDTH}-{WIDTH}-2, full covariance, batch {BATCH}"
    yield from compared(what, host.BY, found, ACTIVATION_LIMITS)


PARTS = {
    "updates": updates,
    "widths": widths,
    "batches": batches,
    "activations": activations,
    "rows": rows,
}


Shape = tuple[tuple[int, ...], int]  # sizes of the layers, and number of rows


def _grown(
    options: argparse.Namespace, ours: Growth, shapes: dict[int, Shape]
) -> Iterator[Row | Growth]:
    """A row for each size, beside the port if it is there; then the growth of each contender."""
    shapes = {size: shape for size, shape in shapes.items() if size <= options.largest}
    found = dict(zip(shapes, _in_processes(options, list(shapes.values())), strict=True))
    for size, (*reference, measured) in found.items():
        limit = PORT_LIMITS[options.backend] if reference else None
        yield Row(f"{ours.what}, {ours.size} {size}", measured, ours.by, *reference, limit=limit)
    for contenders in zip(*found.values(), strict=True):
        name, seconds = contenders[0].name, tuple(getattr(part, ours.by) for part in contenders)
        limit = ours.limit if name == ours.name else None
        yield replace(ours, name=name, sizes=tuple(shapes), seconds=seconds, limit=limit)


def _in_processes(options: argparse.Namespace, shapes: list[Shape]) -> list[list[Measured]]:
    """Contenders by shape, each in a process of its own: what memory an allocator holds ready
    depends on what was there before."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        return pool.map(partial(_measured, options), shapes, chunksize=1)


def _measured(options: argparse.Namespace, shape: Shape) -> list[Measured]:
    """The port first, if it is there; with the peaks of memory where they are known."""
    host = importlib.import_module(f"net_speed_{options.backend}")
    makers = {host.NAME: host.layer_step}
    if options.port is not None:
        import net_speed_port

        makers = {PORT: net_speed_port.maker(options.port), **makers}
    steps = {name: make(*shape) for name, make in makers.items()}
    found = timed(steps, options.repeats)
    return [replace(found[name], mebibytes=host.peak(step)) for name, step in steps.items()]


if __name__ == "__main__":
    main()
