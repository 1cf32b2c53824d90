"""Examples of images, and of UCI's data by variance back-propagation, with few steps."""

import json
from pathlib import Path

import numpy as np
import pyro
import pytest

from moment_inference.objectives import by_draws
from tests.checks import small_programs


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Examples can be imported, and draw little; settings of the process stay as they are."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples")
    import mnist_lenet

    monkeypatch.setattr(by_draws, "LOOKS", 1)
    monkeypatch.setattr(by_draws, "PARTICLES", by_draws.LEAST)
    monkeypatch.setitem(mnist_lenet.PREDICTIONS["draws"], "num_particles", 4)
    validated = pyro.settings.get("validate_distributions_pyro")
    with pyro.settings.context(module_local_params=False):
        yield
    pyro.enable_validation(validated)


def stored(folder, name, size):
    """Store noise as images; the classes are those of where they are bright."""
    random = np.random.default_rng(0)
    classes = random.integers(0, 10, 200).astype(np.uint8)
    images = random.integers(0, 100, [200, *size]).astype(np.uint8)
    images[np.arange(200), 2 * classes] = 255
    (folder / "images").mkdir()
    arrays = {"x_train": images, "y_train": classes, "x_test": images, "y_test": classes}
    np.savez(folder / "images" / f"{name}.npz", **arrays)


def are_measures(found):
    assert 0 <= found["error"] <= 1
    assert 0 <= found["calibration_error"] <= 1
    assert -10 < found["log_likelihood"] < 0
    assert sum(found["reliability"]["count"]) == 12


def test_mnist_lenet(tmp_path):
    import mnist_lenet

    stored(tmp_path, "mnist", (28, 28))
    folders = f"--data {tmp_path} --out {tmp_path}"
    mnist_lenet.main(f"{folders} --steps 2 --images 12".split())
    found = json.loads((tmp_path / "mnist_lenet.json").read_text())
    assert {name: [*found[name]][1:] for name in found} == {
        name: [*kinds] for name, kinds in mnist_lenet.PREDICTED.items()
    }
    for name, kinds in mnist_lenet.PREDICTED.items():
        for kind in kinds:
            are_measures(found[name][kind])
    diagonal, backward = (found["moments"][kind] for kind in ("diagonal", "backward"))
    assert diagonal["log_likelihood"] != backward["log_likelihood"]
    assert (tmp_path / "mnist_lenet.png").is_file()


def test_cifar_net(tmp_path):
    import cifar_net

    stored(tmp_path, "cifar10_20k", (32, 32, 3))
    folders = f"--data {tmp_path} --out {tmp_path}"
    cifar_net.main(f"{folders} --share 0.05 --steps 2 --images 12 --method moments".split())
    found = json.loads((tmp_path / "cifar_net_moments.json").read_text())
    assert (found["method"], found["steps"]) == ("moments", 2)
    for kind in cifar_net.PREDICTIONS:
        are_measures(found[kind])
    model = cifar_net.Network(cifar_net.plain_network(0.05))
    assert sum(name.endswith("weight") for name in model.start) == 9


def test_mnist_transformer(tmp_path, monkeypatch):
    """The loss that training used is that of draws."""
    import mnist_transformer

    monkeypatch.setattr(mnist_transformer, "BATCH", 4)
    stored(tmp_path, "mnist", (28, 28))
    options = f"--data {tmp_path} --out {tmp_path} --steps 4 --images 12 --draws 200"
    mnist_transformer.main(options.split())
    found = json.loads((tmp_path / "mnist_transformer.json").read_text())
    losses = found["losses"]
    assert losses["stated"] == pytest.approx(losses["drawn"], abs=4 * losses["standard_error"])
    assert 0 < losses["kl"] < losses["stated"]
    assert 0 <= found["test"]["error"] <= 1


def test_mnist_pruning(tmp_path, monkeypatch):
    """The smaller network, a plain one, is as accurate as the report says."""
    import mnist_pruning

    stored(tmp_path, "mnist", (28, 28))
    monkeypatch.setattr(mnist_pruning, "BATCH", 50)
    monkeypatch.setattr(mnist_pruning, "HELD_OUT", 50)
    mnist_pruning.main(f"--data {tmp_path} --out {tmp_path} --epochs 20".split())
    found = json.loads((tmp_path / "mnist_pruning.json").read_text())
    for prior in ("log-uniform", "normal"):
        chosen, levels = found[prior]["chosen"], found[prior]["thresholds"]
        assert chosen["accuracy_of_smaller_network"] == pytest.approx(chosen["accuracy"])
        assert levels == sorted(levels, key=lambda level: -level["off"])
        assert 1 <= chosen["hidden_units"] <= 100


def test_calibration_and_intervals():
    """Three predictions, two of them of one bin."""
    import mnist_tridiagonal

    probs = np.array([[0.95, 0.05], [0.97, 0.03], [0.4, 0.6]])
    classes = np.array([0, 1, 1])
    found = mnist_tridiagonal.scores(probs, classes)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["log_likelihood"] == pytest.approx(np.log([0.95, 0.03, 0.6]).mean())
    assert found["calibration_error"] == pytest.approx((2 * 0.46 + 0.4) / 3)
    ends = np.stack([probs - 0.01, probs + np.array([[0.01], [0.03], [0.02]])])
    found = mnist_tridiagonal.widths(probs, ends, classes)
    assert found["width"]["right"]["mean"] == pytest.approx(0.025)
    assert found["width"]["wrong"]["mean"] == pytest.approx(0.04)
    assert found["wider_if_wrong"] == 1


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
