"""The two hosts, the command line of the benchmarks, and what they write."""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

VERSIONS = {"pyro": ("torch", "pyro-ppl"), "numpyro": ("jax", "jaxlib", "numpyro")}
OPTIONS: dict[str, dict[str, Any]] = {
    "--host": {"choices": list(VERSIONS), "default": "pyro"},
    "--check": {"action": "store_true", "help": "fail where a limit is not kept"},
    "--only": {"default": "", "help": "part of a name: run only what has it"},
    "--out": {"type": Path, "help": "write what is measured to this JSON file"},
}


def parser(text: str, *names: str) -> argparse.ArgumentParser:
    """Make a parser of a script, from its docstring and names of options that several have."""
    result = argparse.ArgumentParser(description=text.splitlines()[0])
    for name in names:
        result.add_argument(name, **OPTIONS[name])
    return result


def load(host: str, threads: int | None = None) -> ModuleType:
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


def in_two_processes(
    measured: Callable[[Any], Any], cells: Sequence[Any], shown: Callable[[Any, Any], str]
) -> dict[Any, Any]:
    """What is measured of cells by two processes of one thread each, shown as it comes."""
    os.environ |= {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawned) as pool:
        results = {}
        for cell, result in zip(cells, pool.map(measured, cells), strict=True):
            results[cell] = result
            print(shown(cell, result), flush=True)
    return results


def fitted(host: ModuleType, model: Callable, *data: Any, seed: int = 0, **options: Any) -> Any:
    """Fit a mean-field guide, from a start of its own."""
    host.fresh(seed)
    return host.package.fit(model, host.package.DVIGuide(), *data, seed=seed, **options)


def newton_after_lbfgs(host: ModuleType, model: Callable, *data: Any) -> Any:
    """Fit a network in double precision: L-BFGS brings Newton's method near to an optimum."""
    near = fitted(host, model, *data, method="lbfgs", float64=True)
    options = {"method": "newton", "float64": True, "steps": 600, **host.start_of(near)}
    result = host.package.fit(model, near.guide, *data, **options)
    result.seconds["lbfgs"] = sum(near.seconds.values())
    return result


def write(path: Path | None, content: Any) -> None:
    """Write JSON to a file, if one is named."""
    if path:
        path.write_text(json.dumps(content, indent=2) + "\n")


def described(host: str) -> dict:
    """Processor, number of cores, and versions of Python and of the host."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{package: _version(package) for package in VERSIONS[host]},
    }


def _processor() -> str:
    """The name that Linux gives it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
