"""What all benchmarks share: hosts, arguments, measuring in turn, limits, and files of results."""

import argparse
import importlib
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

REFERENCE, COMPILED = "TraceMeanField_ELBO + AutoNormal", ", compiled"
VERSIONS = {"pyro": ("torch", "pyro-ppl"), "numpyro": ("jax", "jaxlib", "numpyro")}
OPTIONS = {
    "--host": {"choices": list(VERSIONS), "default": "pyro"},
    "--check": {"action": "store_true", "help": "fail where a limit is not kept"},
    "--only": {"default": "", "help": "part of a name: run only what has it"},
    "--out": {"type": Path, "help": "write what is measured to this JSON file"},
    "--no-compiled": {"action": "store_true", "help": "Pyro: no compiled=True"},
    "file": {"type": Path, "help": "NAME.npz with X [N, D] and y [N]"},
    "directory": {"type": Path, "help": "a JSON file for each posterior of posteriordb"},
}


def parse(text, arguments, common, **own):
    """Options of a script.

    Args:
        text: its docstring.
        arguments: of the command line; None for those of the process.
        common: names of options that several scripts have.
        own: by name, a default or a type, or `...` for a path that is needed, the words of the
            help, and the choices, if any.
    """
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    for name in common.split():
        parser.add_argument(name, **OPTIONS[name])
    for name, (default, words, *choices) in own.items():
        kind = {"help": words} | ({"choices": choices[0]} if choices else {})
        if default is ...:
            kind |= {"type": Path, "required": True}
        elif default is False:
            kind["action"] = "store_true"
        elif isinstance(default, type):
            kind["type"] = default
        elif isinstance(default, list):
            kind |= {"type": type(default[0]), "nargs": "+", "default": default}
        else:
            kind |= {"type": type(default), "default": default, "help": f"{words} ({default})"}
        parser.add_argument(f"--{name.replace('_', '-')}", **kind)
    return parser.parse_args(arguments)


def load(host, threads=None):
    """Import a framework's module, which keeps to so many threads.

    PyTorch has one by default, XLA one for each processor that the process may use.
    """
    if host == "numpyro" and threads:  # before JAX is imported
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    if host == "numpyro" and threads == 1:
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    module = importlib.import_module(f"host_{host}")
    if host == "pyro":
        importlib.import_module("torch").set_num_threads(threads or 1)
    return module


def in_processes(function: Callable, arguments: Iterable[tuple], workers=1, fresh=True) -> Iterator:
    """Results for all arguments in their order, each from a process of its own if that is to be
    fresh: what an allocator holds ready, and what is compiled, depends on what was before."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, maxtasksperchild=1 if fresh else None) as pool:
        for result in [pool.apply_async(function, part) for part in arguments]:
            yield result.get()


def processor_seconds():
    """Of this process and of those that it started and that have ended, such as compilers."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


def clocked(function: Callable, clock=processor_seconds) -> tuple:
    """What a function returns, and its seconds, those of compilers included."""
    start = clock()
    return function(), clock() - start


@contextmanager
def empty_cache():
    """Let PyTorch compile in this process as if it had never compiled before."""
    with tempfile.TemporaryDirectory() as cache:
        own = {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        os.environ.update(own)
        yield


@dataclass(frozen=True)
class Measured:
    """Seconds of a contender, and the peak of its memory where that is known."""

    name: str
    minimum: float
    median: float
    mebibytes: float | None = None


@dataclass(frozen=True)
class Row:
    """A contender and its limit: as a ratio to a reference, or in seconds.

    `by` is the statistic of the repeats that counts, "minimum" or "median".
    """

    what: str
    ours: Measured
    by: str
    reference: Measured | None = None
    limit: float | None = None
    in_seconds: bool = False

    @property
    def seconds(self) -> list[float]:
        """Of the contender, and of its reference, if it has one."""
        return [getattr(part, self.by) for part in (self.ours, self.reference) if part]

    @property
    def ratio(self) -> float | None:
        return self.seconds[0] / self.seconds[1] if self.reference else None

    @property
    def judged(self) -> float | None:
        return self.seconds[0] if self.in_seconds else self.ratio

    def __str__(self) -> str:
        ratio = f" = {self.ratio:.2f}" if self.reference else ""
        times = " / ".join(f"{1e3 * part:.3f}" for part in self.seconds)
        limit = f" (limit {self.limit:g})" if self.limit else ""
        return f"{self.what:48s} {self.ours.name:24s} {times:>20s} ms{ratio}{limit}"


@dataclass(frozen=True)
class Growth:
    """Seconds by size, and the limit of their exponent."""

    what: str
    size: str
    name: str
    by: str
    sizes: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    limit: float | None = None

    @property
    def judged(self) -> float | None:
        """The exponent: the slope of a line through the logarithms."""
        if len(self.sizes) < 2:
            return None
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])

    def __str__(self) -> str:
        limit = f" (limit {self.limit:g})" if self.limit else ""
        return f"{self.what}, by {self.size}: {self.name} ~ {self.judged or np.nan:.2f}{limit}"


def timed(steps: dict[str, Callable], repeats: int, clock=time.process_time, parts=1):
    """Seconds of each contender, or of one of so many equal parts of its step; all run in turn, so
    that a disturbance meets all alike."""
    seconds = {name: [] for name in steps}
    for _ in range(repeats + 3):
        for name, step in steps.items():
            seconds[name].append(clocked(step, clock)[1] / parts)
    runs = {name: values[3:] for name, values in seconds.items()}
    return {name: Measured(name, min(run), statistics.median(run)) for name, run in runs.items()}


def compared(what: str, by: str, found: dict[str, Measured], limits=()) -> Iterator[Row]:
    """Rows of contenders beside the first one."""
    reference, *others = found.values()
    for ours in others:
        yield Row(what, ours, by, reference, dict(limits).get(ours.name))


def exceeded(found: Iterable[Row | Growth]) -> list[str]:
    """What is above its limit."""
    return [str(item) for item in found if item.limit and (item.judged or 0.0) > item.limit]


def by_host(options, found: Iterable[Row | Growth]) -> dict:
    """Rows and growths with what they were judged by."""
    rows = [asdict(item) | {"ratio": item.ratio} for item in found if isinstance(item, Row)]
    growths = [asdict(item) | {"exponent": item.judged} for item in found if type(item) is Growth]
    head = {"backend": options.host, "machine": described(options.host)}
    return {**head, "rows": rows, "growths": growths}


def by_title(options, found: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Seconds of contenders, the reference first, by what was measured."""
    seconds = {}
    for row in found:
        ours, reference = row.seconds
        seconds.setdefault(row.what, {row.reference.name: reference})[row.ours.name] = ours
    return seconds


def by_machine(options, rows: list) -> dict:
    """The machine, and all rows."""
    return {"machine": described(options.host), "rows": rows}


def run(options, items: Callable, content=by_machine, failures=exceeded, threads=1) -> list:
    """Print items as they come, write them to ``--out``, and fail as ``--check`` says.

    Args:
        options: of the script.
        items: gives what is measured, of a host and the options.
        content: of the file, by options and items.
        failures: by items, in words.
        threads: of the host.
    """
    host, found = load(options.host, threads), []
    with host.own_parameters():
        for item in items(host, options):
            print(item, flush=True)
            found.append(item)
            write(options.out, content(options, found))
    failed = failures(found)
    if getattr(options, "check", False) and failed:
        sys.exit("beyond the limits:\n" + "\n".join(failed))
    return found


def fitted(host, model, *data, seed=0, **options):
    """Fit a mean-field guide, from a start of its own."""
    host.fresh(seed)
    return host.package.fit(model, host.package.DVIGuide(), *data, seed=seed, **options)


def standardised(*parts: np.ndarray) -> list[np.ndarray]:
    """Arrays with mean 0 and variance 1 over their rows."""
    return [(part - part.mean(0)) / part.std(0) for part in parts]


def read(file: Path, *names: str) -> list[np.ndarray]:
    """Arrays of an NPZ file."""
    with np.load(file) as arrays:
        return [arrays[name] for name in names]


def markdown(head: Iterable[str], rows: Iterable[Iterable]) -> str:
    """A table."""
    lines = [list(head), ["---" for _ in head], *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def write(path: Path | None, content) -> None:
    """Write JSON to a file, if one is named."""
    if path:
        path.write_text(json.dumps(content, indent=2) + "\n")


def described(host: str) -> dict:
    """Processor, number of cores, and versions of Python and of the host."""
    versions = {package: version_of(package) for package in VERSIONS[host]}
    machine = {"processor": _processor(), "cores": os.cpu_count()}
    return {**machine, "python": platform.python_version(), **versions}


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _processor() -> str:
    """The name that Linux gives it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
