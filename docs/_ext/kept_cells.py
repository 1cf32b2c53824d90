"""What the cells of a fragment print and draw, kept until its text or the library changes.

A file runs in a process and a folder of its own: in full where FULL is in the environment, as
`make docs` puts it for a tag, otherwise with a tenth of the steps and a compiler that optimises
less, for these cost most of the time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from sphinx.errors import ExtensionError

RUNNER = Path(__file__).with_name("run_cells.py")
FULL = bool(os.environ.get("FULL"))
XLA = (  # as in tests/conftest.py
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    * version("jax").startswith("0.10.")
)
PACKAGES = ("guides", "moment_calculus", "numpyro_moments", "pyro_moments")


@functools.cache
def library(root: Path) -> bytes:
    """A digest of the packages' source."""
    files = sorted(file for package in PACKAGES for file in (root / package).rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()


def outputs(file: Path, build: Path) -> tuple[Path, dict[str, dict]]:
    """What the cells of `file` print and draw, from the cache or by running it; and its folder."""
    text = file.read_bytes() + RUNNER.read_bytes() + library(file.parents[2]) + b"%d" % FULL
    folder = build / "cells" / f"{file.stem}-{hashlib.sha256(text).hexdigest()[:16]}"
    if not (folder / "cells.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        paths = [str(file.parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "MPLBACKEND": "agg"}
        command = [sys.executable, str(RUNNER), str(file), str(folder.resolve())]
        if FULL:
            command.append("--full")
        else:
            environment.setdefault("XLA_FLAGS", XLA)
        with tempfile.TemporaryDirectory() as scratch:
            run = subprocess.run(
                command, env=environment, cwd=scratch, capture_output=True, text=True, check=False
            )
        if run.returncode:
            raise ExtensionError(f"{file} failed:\n{run.stderr[-4000:]}")
    return folder, json.loads((folder / "cells.json").read_text(encoding="utf-8"))
