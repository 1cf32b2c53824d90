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

import os
import re
import statistics
import subprocess
import sys
import tempfile

import harness
import models
from harness import COMPILED, REFERENCE, Measured, Row, clocked, empty_cache, in_processes

FULL, DIAGONAL, EAGER = "full", "diagonal", "full, eager"
IMPORT_LIMIT, COLD_LIMIT = 1.3, 10.0  # a ratio; seconds
DEPTH_LIMITS = {2: 6.0, 8: 8.0, 16: 12.0}  # seconds by hidden layers
BATCH, WIDTH = 64, 50
COUNTED = "import time; {}; print(time.process_time())"  # since the interpreter started


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --check --only --out",
        repeats=(9, "of the imports"),
        depths=([*DEPTH_LIMITS], "hidden layers"),
    )
    load, counts = os.getloadavg(), {}

    def content(options, rows):
        found = harness.by_host(options, rows)
        return found | {"instructions": counts, "load": [load, os.getloadavg()]}

    def rows(host, options):
        for name, part in PARTS[options.host].items():
            for row, count in part(options) if options.only in name else ():
                if count:
                    counts[f"{row.what}: {row.ours.name}"] = count
                    print(f"{count} instructions")
                yield row

    harness.run(options, rows, content)


def imports(options):
    """The package beside its host."""
    names = options.host, f"{options.host}_moments"
    seconds = {name: [] for name in names}
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


def _seconds_of(code, bytecode):
    """Processor seconds of a fresh interpreter that keeps its bytecode in a folder."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment = kept | {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COUNTED.format(code)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(found.stdout)


def depths(options):
    """Full covariance, which has limits, the diagonal and the host's objective."""
    for depth in options.depths:
        contenders = REFERENCE, FULL, DIAGONAL
        found = in_processes(_first_update, [(depth, name) for name in contenders])
        (reference, _), *ours = found
        what = f"13-{WIDTH}-2, hidden layers {depth}, first update"
        for measured, count in ours:
            limit = DEPTH_LIMITS.get(depth) if measured.name == FULL else None
            yield Row(what, measured, "minimum", reference, limit, in_seconds=True), count


def _first_update(depth, name):
    """Seconds until a jitted update has run once, and the instructions that were compiled."""
    host = harness.load("numpyro", threads=1)
    model = models.observed(host, host.network((13, *depth * [WIDTH], 2)), "heteroscedastic")
    elbo, guide = models.contender(host, name)
    made = guide(model, init_loc_fn=host.infer.init_to_feasible)
    svi, data = host.SVI(model, made, host.Adam(1e-3), elbo), models.normals(host, BATCH)
    state = svi.init(host.jax.random.key(0), *data)

    def first():
        compiled = host.jax.jit(svi.update).lower(state, *data).compile()
        host.jax.block_until_ready(compiled(state, *data))
        return compiled.as_text()

    text, seconds = clocked(first)
    instructions = re.findall(r"^\s+(?:ROOT )?%?[\w.-]+ = ", text, re.MULTILINE)
    return Measured(name, seconds, seconds), len(instructions)


def cold(options):
    """The compiled step, which has a limit, and the eager one beside the host's."""
    contenders = REFERENCE, FULL + COMPILED, EAGER
    reference, *ours = in_processes(first_step, [(name, 2, True) for name in contenders])
    for measured in ours:
        limit = COLD_LIMIT if measured.name == FULL + COMPILED else None
        what = f"13-{WIDTH}-2, process to its first step"
        yield Row(what, measured, "minimum", reference, limit, in_seconds=True), 0


def first_step(name, outputs, whole):
    """One loss with its gradients of a contender in Pyro, compilers included: all that this process
    has used after it, or the loss alone."""
    host = harness.load("pyro", threads=1)
    with empty_cache(), host.own_parameters():
        family = "heteroscedastic" if outputs == 2 else "Normal"
        model = models.observed(host, host.network((13, WIDTH, outputs)), family)
        elbo, guide = models.contender(host, name.removesuffix(", eager"))
        start, data = 0.0 if whole else harness.processor_seconds(), models.normals(host, BATCH)
        elbo.loss_and_grads(model, guide(model, init_scale=0.05), *data)
        seconds = harness.processor_seconds() - start
    return Measured(name, seconds, seconds)


PARTS = {
    "pyro": {"import": imports, "cold": cold},
    "numpyro": {"import": imports, "depth": depths},
}

if __name__ == "__main__":
    main()
