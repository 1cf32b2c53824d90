"""What comes before the second step: imports, tracing and compiling, in processor time.

    OMP_NUM_THREADS=1 python benchmarks/first_steps.py [--host numpyro] [--check]

1. import: `import pyro_moments` (`numpyro_moments`) beside the host's, each in a fresh interpreter,
   with bytecode as an installed package has it; the median of --repeats, which run in turn;
2. in NumPyro depth: tracing and compiling one jitted update of heteroscedastic networks
   13-50-…-50-2, by the number of hidden layers, and the instructions that XLA makes of it;
3. in Pyro cold: a process from its start to its first step of 13-50-2, with compiled=True and an
   empty cache of the compiler.

Each figure of 2 and 3 is from a process of its own. `--check` fails where a ratio or a time is
above its limit; `--out` also writes the machine's load before and after.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import hosts
import models
from net_speed_rows import Measured, Row, as_json, exceeded
from timing import COMPILED, REFERENCE, empty_cache, in_processes, processor_seconds

FULL, DIAGONAL, EAGER = "full", "diagonal", "full, eager"
IMPORT_LIMIT, COLD_LIMIT = 1.3, 10.0  # a ratio; seconds
DEPTH_LIMITS = {2: 6.0, 8: 8.0, 16: 12.0}  # seconds by hidden layers
BATCH, WIDTH = 64, 50
COUNTED = "import time; {}; print(time.process_time())"  # since the interpreter started


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    load, counts, rows = [os.getloadavg()], {}, []
    for name, part in PARTS[options.host].items():
        for row, count in part(options) if options.only in name else ():
            print(row, f"{count} instructions" if count else "", flush=True)
            rows.append(row)
            counts |= {f"{row.what}: {row.ours.name}": count} if count else {}
    head = {"backend": options.host, "machine": hosts.described(options.host)}
    content = head | as_json(rows) | {"instructions": counts, "load": [*load, os.getloadavg()]}
    hosts.write(options.out, content)
    if options.check and (slow := exceeded(rows)):
        sys.exit("too slow:\n" + "\n".join(slow))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--host", "--check", "--only", "--out")
    parser.add_argument("--repeats", type=int, default=9, help="of the imports (9)")
    parser.add_argument("--depths", type=int, nargs="+", default=[*DEPTH_LIMITS])
    return parser.parse_args(arguments)


def imports(options: argparse.Namespace) -> Iterator[tuple[Row, int]]:
    """The package beside its host."""
    names = options.host, f"{options.host}_moments"
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as bytecode:
        for _ in range(1 + options.repeats):
            for name in names:
                seconds[name].append(_seconds_of(f"import {name}", bytecode))
    timed = [values[1:] for values in seconds.values()]  # the first one wrote the bytecode
    reference, ours = (
        Measured(f"import {name}", min(values), statistics.median(values))
        for name, values in zip(names, timed, strict=True)
    )
    yield Row("fresh interpreter", ours, "median", reference, IMPORT_LIMIT), 0


def _seconds_of(code: str, bytecode: str) -> float:
    """Processor seconds of a fresh interpreter that keeps its bytecode in a folder."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment = kept | {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COUNTED.format(code)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(found.stdout)


def depths(options: argparse.Namespace) -> Iterator[tuple[Row, int]]:
    """Full covariance, which has limits, the diagonal and the host's objective."""
    for depth in options.depths:
        contenders = REFERENCE, FULL, DIAGONAL
        found = in_processes(_first_update, [(depth, name) for name in contenders])
        (reference, _), *ours = found
        what = f"13-{WIDTH}-2, hidden layers {depth}, first update"
        for measured, count in ours:
            limit = DEPTH_LIMITS.get(depth) if measured.name == FULL else None
            yield Row(what, measured, "minimum", reference, limit, in_seconds=True), count


def _first_update(depth: int, name: str) -> tuple[Measured, int]:
    """Seconds until a jitted update has run once, and the instructions that were compiled."""
    host = hosts.load("numpyro", threads=1)
    model = models.two_heads(host, host.network((13, *depth * [WIDTH], 2)))
    elbo, guide = _contender(host, name)
    made = guide(model, init_loc_fn=host.infer.init_to_feasible)
    svi, data = host.SVI(model, made, host.Adam(1e-3), elbo), _data(host)
    state = svi.init(host.jax.random.key(0), *data)
    start = processor_seconds()
    compiled = host.jax.jit(svi.update).lower(state, *data).compile()
    host.jax.block_until_ready(compiled(state, *data))
    seconds = processor_seconds() - start
    instructions = re.findall(r"^\s+(?:ROOT )?%?[\w.-]+ = ", compiled.as_text(), re.MULTILINE)
    return Measured(name, seconds, seconds), len(instructions)


def cold(options: argparse.Namespace) -> Iterator[tuple[Row, int]]:
    """The compiled step, which has a limit, and the eager one beside the host's."""
    contenders = REFERENCE, FULL + COMPILED, EAGER
    reference, *ours = in_processes(_process_to_first_step, [(name,) for name in contenders])
    for measured in ours:
        limit = COLD_LIMIT if measured.name == FULL + COMPILED else None
        what = f"13-{WIDTH}-2, process to its first step"
        yield Row(what, measured, "minimum", reference, limit, in_seconds=True), 0


def _process_to_first_step(name: str) -> Measured:
    """All that this process has used after one loss with its gradients, compilers included."""
    host = hosts.load("pyro", threads=1)
    with empty_cache(), host.own_parameters():
        model = models.two_heads(host, host.network((13, WIDTH, 2)))
        elbo, guide = _contender(host, name)
        elbo.loss_and_grads(model, guide(model, init_scale=0.05), *_data(host))
        seconds = processor_seconds()
    return Measured(name, seconds, seconds)


def _contender(host: Any, name: str) -> tuple[Any, Any]:
    if name == REFERENCE:
        return models.reference(host, name)
    covariance = name.partition(",")[0]
    return models.closed_form(host, covariance, compiled=name.endswith(COMPILED))


def _data(host: Any) -> tuple[Any, Any]:
    return host.normal(0, BATCH, 13), host.normal(1, BATCH)


PARTS = {
    "pyro": {"import": imports, "cold": cold},
    "numpyro": {"import": imports, "depth": depths},
}

if __name__ == "__main__":
    main()
