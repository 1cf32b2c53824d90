"""Everything stays on the device that holds the parameters, or that is named."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from pyro_moments.fitting.problem import GlobalRandomState
from tests.project.distributions import ROOT
from tests.pyro.devices.default_device import USES
from tests.pyro.devices.mutants import MUTANTS
from tests.pyro.devices.programs import RUNS


def outcomes(*names):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.pyro.devices", *names],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(request):
    """The results that the chosen tests ask for."""
    items = [item for item in request.session.items if item.path == request.path]
    rows = [item.callspec.params for item in items if hasattr(item, "callspec")]
    mutants = [row["name"] for row in rows if "name" in row]
    runs = [row[kind] for row in rows for kind in ("run", "use") if kind in row]
    golden = ["golden"] if any(item.name == "test_golden_losses_agree" for item in items) else []
    return outcomes(*golden, *mutants, *runs, *(MUTANTS[n].run for n in mutants))


@pytest.mark.parametrize("run", RUNS)
def test_both_devices_agree(found, run):
    expected, result = found["runs"][run]
    assert not isinstance(result, str), result
    if run == "diagnosis":
        assert result == expected
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-10)


@pytest.mark.parametrize("use", USES)
def test_the_default_device_serves(found, use):
    expected, result = found["runs"][use]
    assert not isinstance(result, str), result
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_tensor_on_the_cpu_is_noticed(found, name):
    mutant = MUTANTS[name]
    unchanged, result = found["mutants"][name]
    assert unchanged == found["runs"][mutant.run][0]
    assert isinstance(result, str)
    assert "on cpu, and another on lent:0" in result or ".numpy() is not supported" in result


def test_golden_losses_agree(found):
    faults = found["golden"]
    assert len(faults) > 50
    assert {name: fault for name, fault in faults.items() if fault} == {}


FOLDERS = ("pyro_moments", "guides/pyro", "moment_calculus", "moment_inference")
# those that ``torch.set_default_device`` changes
MAKERS = frozenset(
    "arange as_tensor asarray empty eye full linspace logspace normal ones rand randint randn "
    "randperm scalar_tensor tensor tril_indices triu_indices zeros".split()
)


def names_no_device(source: str) -> Iterator[str]:
    """Yield what makes tensors without saying where, with its line."""
    tree = ast.parse(source)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        is_told = any(option.arg in ("device", None) for option in call.keywords)
        for part in [*call.args, *([] if is_told else [call.func])]:
            module, _, name = ast.unparse(part).rpartition(".")
            if module == "torch" and name in MAKERS:
                yield f"{call.lineno}: {ast.unparse(call)}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_tensor_is_made_on_a_named_device(folder):
    files: list[Path] = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = [f"{path}:{each}" for path in files for each in names_no_device(path.read_text())]
    assert found == []


@pytest.mark.parametrize("line", ["torch.zeros(3)", "map(torch.as_tensor, parts)"])
def test_a_tensor_without_a_device_is_noticed(line):
    assert list(names_no_device(line)) != []
    assert list(names_no_device('torch.zeros(3, device="cpu")')) == []


def test_random_states_stay_on_the_cpu():
    state = GlobalRandomState()
    before = state.get()
    expected = torch.rand(3)
    arrays = before | {"torch": before["torch"].numpy()}  # as a checkpoint has it
    with torch.device("meta"):
        state.set(arrays)
    assert torch.equal(torch.rand(3), expected)
