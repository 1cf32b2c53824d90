"""Imports point downwards, one front end never loads the other's host, a missing host is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
        ("moment_calculus/numerics/wrong.py", "from moment_calculus.functions import base"),
        ("moment_calculus/refusals/wrong.py", "from moment_calculus.numerics import arrays"),
        ("moment_calculus/functions/wrong.py", "from moment_calculus.values import Gaussian"),
        ("moment_calculus/values/wrong.py", "from moment_calculus.operations.shapes import moves"),
        ("moment_calculus/hosts/wrong.py", "from moment_calculus.operations.linear import maps"),
        ("moment_calculus/likelihoods/wrong.py", "from moment_calculus.recognition import base"),
        ("guides/families/wrong.py", "import pyro"),
        ("guides/pyro/wrong.py", "import pyro_moments"),
        ("guides/pyro/wrong.py", "def late():\n    import numpyro"),
        ("guides/pyro/wrong.py", "from guides import numpyro"),
        ("pyro_moments/rules/wrong.py", "from pyro_moments.evaluation import tensor"),
        ("pyro_moments/rules/wrong.py", "import jax.numpy"),
        ("pyro_moments/rules/wrong.py", "def late():\n    import numpyro_moments"),
        ("guides/numpyro/wrong.py", "import numpyro_moments"),
        ("guides/numpyro/wrong.py", "def late():\n    import torch"),
        ("numpyro_moments/sites/wrong.py", "from numpyro_moments.objectives import elbo"),
        ("numpyro_moments/rules/wrong.py", "import pyro.distributions"),
        ("numpyro_moments/rules/wrong.py", "import pyro_moments"),
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


HOSTS = {"pyro": ("torch", "pyro"), "numpyro": ("jax", "numpyro")}


@pytest.mark.parametrize(("host", "other"), [("pyro", "numpyro"), ("numpyro", "pyro")])
def test_a_front_end_never_loads_the_other_ones_host(host, other):
    names = (*HOSTS[host], *HOSTS[other], f"{other}_moments")
    everything = IMPORT_EVERYTHING_IN.format(packages=[f"{host}_moments", f"guides.{host}"])
    for code in (f"import {host}_moments", f"import guides.{host}", everything):
        assert loaded(code, names) == list(HOSTS[host])


@pytest.mark.parametrize(("host", "other"), [("pyro", "numpyro"), ("numpyro", "pyro")])
def test_a_front_end_works_where_the_other_ones_host_is_missing(host, other):
    packages = [f"{host}_moments", f"guides.{host}"]
    code = BLOCK.format(blocked=HOSTS[other]) + IMPORT_EVERYTHING_IN.format(packages=packages)
    result = run_python(code)
    assert result.returncode == 0, result.stderr


def test_lower_floors_load_no_framework():
    code = IMPORT_EVERYTHING_IN.format(packages=["moment_calculus", "guides.families"])
    assert loaded(code, ("torch", "pyro", "jax", "numpyro")) == []


@pytest.mark.parametrize("package", ["{}_moments", "guides.{}"])
@pytest.mark.parametrize(
    ("host", "blocked"),
    [(host, blocked) for host, names in HOSTS.items() for blocked in (names, *zip(names))],
    ids=lambda value: value if isinstance(value, str) else " and ".join(value),
)
def test_missing_host_says_what_to_install(package, host, blocked):
    name = package.format(host)
    code = f"""
try:
    import {name}
except ImportError as error:
    assert str(error).startswith('{name} needs '), error
    assert 'pip install "pyro-moments[{host}]"' in str(error), error
else:
    raise AssertionError("{name} was imported without its host")
"""
    result = run_python(BLOCK.format(blocked=blocked) + code)
    assert result.returncode == 0, result.stderr
