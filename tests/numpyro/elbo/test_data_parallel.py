"""Data-parallel evaluation on a device mesh equals that on one device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_four_devices_equal_one():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    result = subprocess.run(
        [sys.executable, "-m", "tests.numpyro.elbo.data_parallel_step"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    differences = json.loads(result.stdout.splitlines()[-1])
    assert set(differences) == {"loss", "parameters"}
    assert all(difference <= 1e-6 for difference in differences.values()), differences
