"""Imports point downwards, what is slow is imported on its first use, a missing host is named."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.project.counts import PACKAGES, ROOT

BLOCK = """
import sys

wanted = []

class Blocker:
    names = {blocked!r}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            wanted.append(name)
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

blocker = Blocker()
sys.meta_path.insert(0, blocker)
"""


def run_python(code: str, directory: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter that sees the packages under `directory` first."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs import-linter with the contracts of pyproject.toml on the packages under `directory`."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    return run_python(code, directory)


def loaded(*parts: str) -> list[list[str]]:
    """What is in sys.modules after each part of a program that a fresh interpreter runs."""
    report = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    result = run_python("\n".join(line for part in parts for line in (part, report)))
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_every_package_is_under_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert sorted(settings["root_packages"]) == sorted(PACKAGES.values())


def test_imports_point_downwards():
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


WRONG = [
    ("moment_calculus", "import torch"),
    ("moment_calculus", "from moment_guides import families"),
    ("moment_calculus/numerics", "from moment_calculus.functions import base"),
    ("moment_calculus/rulebooks", "from moment_inference import optimisation"),
    ("moment_inference/optimisation", "from moment_inference.objectives import calls"),
    ("moment_inference/response", "def late():\n    import jax"),
    ("moment_calculus/functions", "from moment_calculus.values import Gaussian"),
    ("moment_calculus/values", "from moment_calculus.operations.shapes import moves"),
    ("moment_calculus/predictions", "from moment_calculus.operations.linear import maps"),
    ("moment_calculus/likelihoods", "from moment_calculus.rulebooks import dvi"),
    ("moment_guides/families", "import pyro"),
    ("moment_guides/families", "from moment_inference import host"),
    ("moment_inference/objectives", "from moment_guides.pyro import mean_field"),
    ("moment_guides/pyro", "import pyro_moments"),
    ("moment_guides/pyro", "def late():\n    import numpyro"),
    ("moment_guides/pyro", "from moment_guides import numpyro"),
    ("pyro_moments/rules", "from pyro_moments.evaluation import tensor"),
    ("pyro_moments/rules", "import jax.numpy"),
    ("pyro_moments/rules", "def late():\n    import numpyro_moments"),
    ("moment_guides/numpyro", "import numpyro_moments"),
    ("moment_guides/numpyro", "def late():\n    import torch"),
    ("numpyro_moments/sites", "from numpyro_moments.objectives import elbo"),
    ("numpyro_moments/rules", "import pyro.distributions"),
    ("numpyro_moments/rules", "import pyro_moments"),
    ("moment_calculus/operations", "from moment_calculus.operations.linear import tridiagonal"),
    ("moment_calculus/likelihoods", "from moment_calculus.operations.dropout import masked_weight"),
    ("moment_calculus/rulebooks", "from moment_calculus.rulebooks import logistic"),
    ("moment_inference/objectives", "from moment_guides.families import vbp"),
    ("moment_inference/criticism", "from moment_inference.criticism import pruning"),
    ("pyro_moments/draws", "from pyro_moments import units"),
    ("pyro_moments/fitting", "from pyro_moments.prediction import statistics"),
    ("numpyro_moments/fitting", "from numpyro_moments.objectives import alpha"),
]


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """What import-linter says of the packages with a module for every row of WRONG."""
    directory = tmp_path_factory.mktemp("packages")
    shutil.copy(ROOT / "pyproject.toml", directory)
    for folder, package in PACKAGES.items():
        shutil.copytree(ROOT / folder, directory / package)
    for row, (folder, forbidden) in enumerate(WRONG):
        (directory / folder / f"wrong_{row}_.py").write_text(forbidden + "\n")
    result = lint_imports(directory)
    assert result.returncode == 1, result.stdout + result.stderr
    return " ".join(result.stdout.split())  # long lines are wrapped


@pytest.mark.parametrize("row", range(len(WRONG)), ids=lambda row: ": ".join(WRONG[row]))
def test_the_contracts_catch_a_wrong_import(complaints, row):
    folder, forbidden = WRONG[row]
    module = f"{folder.replace('/', '.')}.wrong_{row}_"
    imported = re.search(r"(?:from|import) (\w+)", forbidden)[1]
    assert f"{module} -> {imported}" in complaints, complaints


HOSTS = {"pyro": ("torch", "pyro"), "numpyro": ("jax", "numpyro")}


@pytest.mark.parametrize("host", HOSTS)
def test_importing_a_front_end_leaves_what_is_slow_to_import_for_its_first_use(host):
    slow = "scipy.stats scipy.optimize arviz pandas flax torch._dynamo torch._inductor".split()
    ours = [f"{host}_moments.{part}" for part in ("criticism.verdicts", "response.linear_response")]
    starred = f"from {host}_moments import *; assert diagnose and linear_response"
    at_once, later = loaded(f"import {host}_moments", starred)
    assert {*slow, *ours, *HOSTS[host]} & {*at_once} == {*HOSTS[host]}
    assert {*ours} <= {*later}


WITHOUT_HOST = """
import importlib

for host, blocked in {cases!r}:
    blocker.names = blocked
    for name in (f"{{host}}_moments", f"moment_guides.{{host}}"):
        before = set(sys.modules)
        try:
            importlib.import_module(name)
        except ImportError as error:
            assert str(error).startswith(f"{{name}} needs "), error
            assert f'pip install "pyro-moments[{{host}}]"' in str(error), error
        else:
            raise AssertionError(f"{{name}} was imported without {{blocked}}")
        for module in set(sys.modules) - before:
            if module.partition(".")[0] in {removed!r}:
                del sys.modules[module]
"""


def test_missing_hosts_say_what_to_install():
    """Without both modules of a host, and without either."""
    cases = [(host, blocked) for host, names in HOSTS.items() for blocked in (names, *zip(names))]
    removed = (*PACKAGES.values(), *HOSTS)  # torch and jax stay loaded
    result = run_python(
        BLOCK.format(blocked=()) + WITHOUT_HOST.format(cases=cases, removed=removed)
    )
    assert result.returncode == 0, result.stderr
