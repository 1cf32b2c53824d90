"""The wheel and the sdist, built from copies of the tracked files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.project.counts import ROOT


def run(*command, cwd, **variables):
    """What a command prints that sees nothing of the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def copy_of_source(folder: Path) -> Path:
    """The tracked files as they are now, in a folder of their own."""
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def wheel_by_pip(source: Path, folder: Path) -> Path:
    """The wheel of a folder, by pip and with what pyproject.toml says that building needs."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source, cwd=folder)
    (found,) = folder.glob("*.whl")
    return found


def wheel_of(source: Path, folder: Path) -> Path:
    """The wheel of a folder, by the hook of PEP 517 that build front ends call."""
    return _built("wheel", source, folder, "*.whl")


def sdist_of(source: Path, folder: Path) -> Path:
    """The sdist of a folder, as the wheel."""
    return _built("sdist", source, folder, "*.tar.gz")


def _built(kind: str, source: Path, folder: Path, name: str) -> Path:
    """What setuptools makes, as it is installed here: no build front end fetches another."""
    hook = f"from setuptools.build_meta import build_{kind} as b; b({str(folder)!r})"
    run(sys.executable, "-c", hook, cwd=source)
    (found,) = folder.glob(name)
    return found
