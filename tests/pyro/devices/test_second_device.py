"""Results on a second device equal those on the CPU; it runs in a process of its own."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

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
