"""What the cells of fragments print and draw, kept until their text or the library changes.

They run in full where FULL is in the environment, as `make docs` puts it for a tag, otherwise as a
draft, with a compiler that optimises less: compiling and steps cost most of the time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sphinx.errors import ExtensionError

from tests.checks import XLA_FLAGS

RUNNER = Path(__file__).with_name("run_cells.py")
FULL = bool(os.environ.get("FULL"))
PACKAGES = ("guides", "moment_calculus", "moment_inference", "numpyro_moments", "pyro_moments")


@functools.cache
def library(root: Path) -> bytes:
    """A digest of the packages' source, and of what runs the cells."""
    files = sorted(file for package in PACKAGES for file in (root / package).rglob("*.py"))
    files += sorted(RUNNER.parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()


def folder_of(file: Path, build: Path) -> Path:
    """Where the outputs of a fragment are kept."""
    text = file.read_bytes() + library(file.parents[2]) + b"%d" % FULL
    return build / "cells" / f"{file.stem}-{hashlib.sha256(text).hexdigest()[:16]}"


def outputs(file: Path, build: Path) -> tuple[Path, dict[str, dict]]:
    """What the cells of a fragment print and draw; and its folder."""
    folder = folder_of(file, build)
    return folder, json.loads((folder / "cells.json").read_text(encoding="utf-8"))


def run_missing(files: Iterable[Path], build: Path, workers: int) -> None:
    """Run the fragments whose outputs are not kept, in a process for each framework."""
    jobs: dict[str, list[Path]] = {}
    for file in files:
        folder = folder_of(file, build)
        if not (folder / "cells.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            jobs.setdefault(file.stem.rpartition("_")[2], []).extend((file, folder.resolve()))
    if jobs:
        at_once = min(workers, len(jobs))
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(functools.partial(_run, workers // at_once), jobs.values()))


def _run(workers: int, paths: list[Path]) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "MPLBACKEND": "agg"}
    command = [sys.executable, str(RUNNER), *map(str, paths), f"--workers={workers}"]
    if FULL:
        command.append("--full")
    else:
        environment.setdefault("XLA_FLAGS", XLA_FLAGS)
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise ExtensionError(f"a fragment failed:\n{run.stderr[-4000:]}")
