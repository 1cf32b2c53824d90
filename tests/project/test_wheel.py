"""The wheel: what is in it, and each front end alone in an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import moment_calculus
from tests.project.test_readme import BLOCKS, quickly

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"guides", "moment_calculus", "numpyro_moments", "pyro_moments"}
ALONE = {
    "pyro": ("numpyro", 0),
    "numpyro": ("torch", 1),
}  # what is missing, and the block that runs


def run(*command, cwd):
    """What a command prints that sees nothing of the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [*map(str, command)]
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source, cwd=folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_what_is_in_the_wheel(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert moment_calculus.__version__ in wheel.name


@pytest.mark.slow
@pytest.mark.parametrize("extra", ALONE)
def test_a_front_end_runs_alone_from_the_wheel(wheel, extra, tmp_path):
    missing, block = ALONE[extra]
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    options = ["-q", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    run(python, "-m", "pip", "install", *options, f"{wheel}[{extra}]", cwd=tmp_path)
    (code,) = quickly([BLOCKS[block]])
    check = f"import importlib.util as u; assert u.find_spec('{missing}') is None\n"
    front_end = f"import {extra}_moments; print({extra}_moments.__version__)\n"
    printed = run(python, "-I", "-c", check + code + "\n" + front_end, cwd=tmp_path)
    assert printed.strip() == moment_calculus.__version__
