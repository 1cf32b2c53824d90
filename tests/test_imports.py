"""Imports point downwards, one front end never loads the other's host, a missing host is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pyro_moments", "numpyro_moments", "guides", "moment_calculus")

IMPORT_EVERYTHING_IN = """
import importlib, pkgutil, sys
for name in {packages!r}:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
"""

BLOCK = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run_python(code: str, directory: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter that sees the packages under `directory` first."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs import-linter with the contracts of pyproject.toml on the packages under `directory`."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    return run_python(code, directory)


def loaded(code: str, names: tuple[str, ...]) -> list[str]:
    """Those of `names` that are in sys.modules after `code` has run in a fresh interpreter."""
    report = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    result = run_python(f"{code}\n{report}")
    assert result.returncode == 0, result.stderr
    modules = json.loads(result.stdout.splitlines()[-1])
    return [name for name in names if name in modules]


def test_every_package_is_under_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    existing = [name for name in PACKAGES if (ROOT / name / "__init__.py").exists()]
    assert sorted(settings["root_packages"]) == sorted(existing)


def test_imports_point_downwards():
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("moment_calculus/wrong.py", "import torch"),
        ("moment_calculus/wrong.py", "from guides import families"),
        ("guides/families/wrong.py", "import pyro"),
        ("guides/pyro/wrong.py", "import pyro_moments"),
        ("guides/pyro/wrong.py", "def late():\n    import numpyro"),
        ("pyro_moments/wrong.py", "import jax.numpy"),
    ],
)
def test_the_contracts_catch_a_wrong_import(tmp_path, module, forbidden):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in filter(Path.is_dir, map(ROOT.joinpath, PACKAGES)):
        shutil.copytree(package, tmp_path / package.name)
    (tmp_path / module).write_text(forbidden + "\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "wrong" in result.stdout


def test_pyro_front_end_never_loads_jax():
    code = IMPORT_EVERYTHING_IN.format(packages=["pyro_moments", "guides.pyro"])
    assert loaded("import pyro_moments", ("pyro", "jax", "numpyro")) == ["pyro"]
    assert loaded(code, ("pyro", "jax", "numpyro")) == ["pyro"]


def test_lower_floors_load_no_framework():
    code = IMPORT_EVERYTHING_IN.format(packages=["moment_calculus", "guides.families"])
    assert loaded(code, ("torch", "pyro", "jax", "numpyro")) == []


@pytest.mark.parametrize("blocked", [("torch", "pyro"), ("pyro",), ("torch",)], ids=" and ".join)
def test_missing_host_says_what_to_install(blocked):
    code = """
try:
    import pyro_moments
except ImportError as error:
    assert 'pip install "pyro-moments[pyro]"' in str(error), error
else:
    raise AssertionError("pyro_moments was imported without its host")
"""
    result = run_python(BLOCK.format(blocked=blocked) + code)
    assert result.returncode == 0, result.stderr
