"""The example of step activations, briefly."""

import json
from pathlib import Path

import pyro
import pytest

from tests.checks import small_programs


@pytest.fixture(autouse=True)
def _settings_of_pyro():
    """The example changes one for the whole process."""
    with pyro.settings.context(module_local_params=False):
        yield


@pytest.mark.parametrize("backend", ["pyro", "numpyro"])
def test_digits_by_steps(backend, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples")
    import digits_steps

    with small_programs.large_by_numpy():
        options = f"--backend {backend} --steps 100 --particles 20 --out {tmp_path}"
        digits_steps.main(options.split())
    summary = json.loads((tmp_path / f"digits_steps_{backend}.json").read_text())
    assert summary["moments"]["accuracy"] > 0.85
    assert summary["straight-through"]["accuracy"] > 0.85
    assert abs(summary["moments"]["loss"] / summary["moments"]["loss by draws"] - 1) < 0.05
