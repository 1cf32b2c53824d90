"""What a benchmark was run on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HOSTS = {"pyro": ("torch", "pyro-ppl"), "numpyro": ("jax", "jaxlib", "numpyro")}


def described(backend: str) -> dict:
    """Processor, number of cores, and versions of Python and of the host."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{package: _version(package) for package in HOSTS[backend]},
    }


def one_processor() -> None:
    """Before JAX is imported: XLA makes one thread for each processor that it may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()


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
