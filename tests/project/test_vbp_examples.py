"""The examples of variance back-propagation run briefly, and what they report is well formed."""

import json
from pathlib import Path

import numpy as np
import pyro
import pytest

from tests.checks import small_programs
from tests.project.test_image_examples import are_measures, stored


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Examples can be imported; settings of the process stay as they are."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples")
    validated = pyro.settings.get("validate_distributions_pyro")
    with pyro.settings.context(module_local_params=False):
        yield
    pyro.enable_validation(validated)


def test_uci_vbp(tmp_path, monkeypatch):
    import uci_vbp

    random = np.random.default_rng(0)
    inputs = random.normal(size=(60, 2))
    target = 100 * inputs[:, 0] + 10 * random.normal(size=60)
    test_mask = np.arange(60) % 10 == np.arange(2)[:, None]
    (tmp_path / "uci").mkdir()
    np.savez(tmp_path / "uci" / "yacht.npz", X=inputs, y=target, test_mask=test_mask)
    monkeypatch.setattr(uci_vbp, "EPOCHS", (1, 25))
    monkeypatch.setattr(uci_vbp, "RATE", 0.03)
    with small_programs.large_by_numpy():
        for options in ("", " --constant --splits 1"):
            uci_vbp.main(f"--data {tmp_path} --out {tmp_path} --sets yacht{options}".split())
    kinds = json.loads((tmp_path / "uci_vbp.json").read_text())["yacht"].values()
    assert [len(found["test_log_likelihood"]["per_split"]) for found in kinds] == [2, 1]
    for found in kinds:
        assert found["epochs"] == 25
        assert -4.5 < found["test_log_likelihood"]["mean"] < -3.5
        assert 0.05 < found["noise"] < 0.2  # 10 of 100


def test_mnist_vbp(tmp_path, monkeypatch):
    import mnist_vbp

    monkeypatch.setitem(mnist_vbp.METHODS["draws"][1], "num_particles", 4)
    stored(tmp_path, "mnist", (28, 28))
    folders = f"--data {tmp_path} --out {tmp_path}"
    mnist_vbp.main(f"{folders} --steps 2 --images 12".split())
    found = json.loads((tmp_path / "mnist_vbp.json").read_text())
    for net in mnist_vbp.EPOCHS:
        for method in mnist_vbp.METHODS:
            are_measures(found[net][method])
