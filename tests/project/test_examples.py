"""The examples run on either backend, briefly, and what they report is well formed."""

import importlib
import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyro
import pytest
import torch

from moment_inference.objectives import by_draws
from numpyro_moments.sites.traces import bind
from tests.checks import small_programs
from tests.checks.sampled import sample
from tests.oracles.numpyro_samples import perturbed

IN_BOTH = pytest.mark.parametrize("backend", ["pyro", "numpyro"])


@pytest.fixture(autouse=True)
def _scripts_on_path(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples")


@pytest.fixture(autouse=True)
def _settings_of_pyro():
    """The examples change them for the whole process."""
    validated = pyro.settings.get("validate_distributions_pyro")
    with pyro.settings.context(module_local_params=False):
        yield
    pyro.enable_validation(validated)


@pytest.fixture(autouse=True)
def _by_numpy(request):
    """What examples in NumPyro say and write does not depend on a compiler."""
    in_numpyro = "numpyro" in request.node.name or request.function is test_uci_uncertain_inputs
    with small_programs.large_by_numpy() if in_numpyro else nullcontext():
        yield


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    """Every fit compares its loss with draws in the end, which other tests are about."""
    monkeypatch.setattr(by_draws, "LOOKS", 1)
    monkeypatch.setattr(by_draws, "PARTICLES", by_draws.LEAST)


@pytest.fixture
def data(tmp_path):
    """A folder with one small set of two splits; its last column is constant."""
    random = np.random.default_rng(0)
    inputs = np.column_stack([random.normal(size=(60, 2)), np.full(60, 0.998)])
    target = 100 * inputs[:, 0] + 10 * random.normal(size=60)
    test_mask = np.arange(60) % 10 == np.arange(2)[:, None]
    (tmp_path / "uci").mkdir()
    np.savez(tmp_path / "uci" / "toy.npz", X=inputs, y=target, test_mask=test_mask)
    return tmp_path


def regression_on_toy_data(data, options):
    """The file that is written."""
    import uci_regression

    out = data / "out.json"
    options = f"--set toy --steps 12 --hidden 8 --batch-size 54 --learning-rate 0.05 {options}"
    uci_regression.main(["--data", str(data / "uci"), "--out", str(out), *options.split()])
    return out.read_text()


@pytest.mark.parametrize("method", ["dvi", "ddvi", "mcvi"])
def test_uci_regression(method, data):
    summary = json.loads(regression_on_toy_data(data, f"--method {method} --splits 2"))
    assert (summary["set"], summary["backend"]) == ("toy", "pyro")
    assert len(summary["test_log_likelihood"]["per_split"]) == 2
    assert -20 < summary["test_log_likelihood"]["mean"] < -3  # a standard deviation of 100
    assert 5 < summary["rmse"]["mean"] < 500


@IN_BOTH
def test_uci_regression_is_reproducible(backend, data):
    """By the method that draws; in NumPyro the only run, since XLA compiles each."""
    options = f"--method mcvi --backend {backend} --splits 1 --first-split 1"
    first, second = (regression_on_toy_data(data, options) for _ in range(2))
    assert first == second
    summary = json.loads(first)
    assert (summary["backend"], summary["splits"]) == (backend, [1])
    assert -20 < summary["test_log_likelihood"]["mean"] < -3
    assert 5 < summary["rmse"]["mean"] < 500


def test_uci_regression_names_the_sets_it_has(data):
    import uci_regression

    with pytest.raises(SystemExit, match=r"no set 'tpy' in .*: it has toy"):
        uci_regression.main(["--data", str(data), "--set", "tpy"])


def test_constant_columns_keep_their_unit(data):
    import regression

    with np.load(data / "uci" / "toy.npz") as arrays:
        split = regression.standardise(arrays["X"], arrays["y"], arrays["test_mask"][0])
    np.testing.assert_allclose(split.x_train[:, 2], 0, atol=1e-6)
    np.testing.assert_allclose(split.x_train[:, 0].std(), 1, rtol=1e-5)
    np.testing.assert_allclose(split.y_train.mean(), 0, atol=1e-6)


def test_scores_are_in_the_units_of_the_target():
    import regression

    target = np.array([1.0, -1.0], np.float32)
    split = regression.Split(target[:, None], target, target[:, None], target, scale=10.0)
    log_likelihood, rmse = regression.scores(split, np.array([-1.0, -2.0]), target + 0.5)
    np.testing.assert_allclose((log_likelihood, rmse), (-1.5 - np.log(10), 5.0))


def noisy_line():
    """Twenty rows, which are the training and the test rows."""
    from regression import Schedule, Split

    random = np.random.default_rng(0)
    x = random.normal(size=(20, 2)).astype(np.float32)
    y = x[:, 0] + 0.3 * random.normal(size=20).astype(np.float32)
    return Split(x, y, x, y, scale=1.0), Schedule(60, batch_size=20, learning_rate=0.05, seed=0)


def predictions_in_pyro(split, schedule):
    import regression_pyro as backend

    pyro.settings.set(module_local_params=True)
    x, y = torch.as_tensor(split.x_train), torch.as_tensor(split.y_train)
    model = backend.HeteroscedasticNetwork(2, 5)
    guide = backend.make_guide(model)
    assert backend.train(backend.METHODS["dvi"](), model, guide, split, schedule).steps == 60
    return (
        backend.analytic_log_prob(model, guide, x, y),
        backend.sampled_log_prob(model, guide, x, y, samples=2000),
    )


def predictions_in_numpyro(split, schedule):
    """At a posterior that is not trained, since XLA compiles that for long."""
    import regression_numpyro as backend

    model = backend.heteroscedastic_network(5)
    guide = backend.make_guide(model)
    bind(guide, model)
    params = perturbed(guide, split.x_train, split.y_train, spread=0.1)
    posterior = model, guide, params, split.x_test, split.y_test
    return (
        backend.analytic_log_prob(*posterior),
        backend.sampled_log_prob(*posterior, samples=20_000),
    )


@pytest.mark.parametrize("predictions", [predictions_in_pyro, predictions_in_numpyro])
def test_analytic_and_sampled_predictions_agree(predictions):
    analytic, sampled = predictions(*noisy_line())
    for exact, average in zip(analytic, sampled, strict=True):
        np.testing.assert_allclose(exact, average, atol=3e-2)


@pytest.mark.parametrize(("backend", "comparisons"), [("pyro", 0), ("pyro", 1), ("numpyro", 2)])
def test_demo(backend, comparisons, tmp_path, capsys):
    """NUTS beside the network of NumPyro takes most of the time, and runs where everything does."""
    demo = importlib.import_module("demo")
    if backend == "numpyro" and sample() is not None:
        comparisons = 0

    picture = tmp_path / "demo.png"
    options = f"--backend {backend} --seconds 0.1 --nuts 4 --out {picture}"
    demo.main([*options.split(), *["--details"] * bool(comparisons)])
    *before, after = capsys.readouterr().out.partition(str(picture))
    summary = "".join(before)
    assert summary.count("\n") <= 60
    assert "of 89 unseen patients" in summary
    assert summary.rstrip().endswith(str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    if comparisons:
        assert after.count("latent sites, on the unconstrained space") == comparisons
        compared = picture.with_name("comparison.png")
        assert after.rstrip().endswith(str(compared))
        assert compared.read_bytes().startswith(b"\x89PNG")


@IN_BOTH
def test_uci_dropout(backend, data, tmp_path, monkeypatch):
    import uci_dropout

    rates = {"hidden": (0.01, 0.1), "inputs": (0.1,)}
    monkeypatch.setattr(uci_dropout, "RATES", rates)
    (data / "uci" / "toy.npz").rename(data / "uci" / "yacht.npz")
    splits, methods = 2, list(uci_dropout.METHODS)
    if backend == "numpyro":  # the energies of other α are the same program
        splits, methods = 1, ["α = 0.5", "α = 0.5 without draws"]
    options = f"--sets yacht --splits {splits} --validated 1 --steps 5 --backend {backend}"
    folders = ["--data", str(data), "--out", str(tmp_path)]
    uci_dropout.main([*folders, *options.split(), "--methods", *methods])
    found = json.loads((tmp_path / "uci_dropout.json").read_text())["yacht"]
    assert list(found) == methods
    for method in found.values():
        assert method["p"] in rates[method["dropped"]]
        assert len(method["test_log_likelihood"]["per_split"]) == splits
        assert -20 < method["test_log_likelihood"]["mean"] < -3
    assert (tmp_path / "uci_dropout.png").is_file() == (splits == 2)  # of all methods


def test_uci_uncertain_inputs(data, tmp_path):
    import uci_uncertain_inputs

    options = f"--data {data} --set toy --steps 5 --hidden 4 --splits 1 --out {tmp_path}/out.json"
    uci_uncertain_inputs.main(options.split())
    found = json.loads((tmp_path / "out.json").read_text())
    for kind in uci_uncertain_inputs.KINDS:
        scores = [found[kind][m]["test_log_likelihood"] for m in uci_uncertain_inputs.METHODS]
        assert np.isfinite([score["per_split"] for score in scores]).all()
        assert {len(score["per_split"]) for score in scores} == {1}
        assert scores[0]["mean"] != scores[1]["mean"]


@IN_BOTH
def test_uci_tridiagonal(backend, data, tmp_path):
    import uci_tridiagonal

    (data / "uci" / "toy.npz").rename(data / "uci" / "yacht.npz")
    compared = list(uci_tridiagonal.COMPARED)
    guides = compared if backend == "pyro" else compared[1:4]
    options = f"--sets yacht --splits 2 --steps 2 --hidden 5 --backend {backend}"
    folders = ["--data", str(data), "--out", str(tmp_path)]
    uci_tridiagonal.main([*folders, *options.split(), "--guides", *guides])
    found = json.loads((tmp_path / "uci_tridiagonal.json").read_text())["yacht"]
    assert list(found) == guides
    for name, guide in found.items():
        assert len(guide["test_log_likelihood"]["per_split"]) == 2
        assert -20 < guide["test_log_likelihood"]["mean"] < -3
        assert len(guide["groups"]) == (0 if name == "mean field" else 4)
    output = {name: guide["groups"].get("output.weight") for name, guide in found.items()}
    assert set(output["free scales"]) == {"tau", "rho", "size_of_rho"}
    assert 0 < output["proportional"]["size_of_rho"] < 0.5
    assert output["proportional, ρ = 0"]["size_of_rho"] == 0
    assert output["proportional, ρ = 0"]["tau"] > 0
    assert (tmp_path / "uci_tridiagonal.png").is_file() == (guides == compared)


@pytest.fixture
def digits(tmp_path):
    """A folder with images whose class is where they are bright."""
    random = np.random.default_rng(0)
    classes = random.integers(0, 10, 600).astype(np.uint8)
    images = random.integers(0, 100, [600, 28, 28]).astype(np.uint8)
    images[np.arange(600), 2 * classes] = 255
    (tmp_path / "images").mkdir()
    arrays = {"x_train": images, "y_train": classes, "x_test": images, "y_test": classes}
    np.savez(tmp_path / "images" / "mnist.npz", **arrays)
    return tmp_path


@IN_BOTH
def test_mnist_tridiagonal(backend, digits):
    import mnist_tridiagonal

    weights = 20 * (784 + 20 + 20 + 10) + 3 * 20 + 10
    counts = {"mean field": 2 * weights, "proportional": weights + 16}  # eight sites
    if backend == "pyro":
        counts["free scales"] = 2 * weights + 8
    options = f"--hidden 20 --steps 60 --images 40 --draws 30 --backend {backend}".split()
    folders = ["--data", str(digits), "--out", str(digits)]
    mnist_tridiagonal.main([*folders, *options, "--guides", *counts])
    found = json.loads((digits / "mnist_tridiagonal.json").read_text())
    for guide in found.values():
        assert guide["draws"]["accuracy"] > 0.5  # one in ten by chance
        assert 0 < guide["draws"]["calibration_error"] < 0.8
        assert 0 < guide["width"]["right"]["mean"] < 1
    assert {name: guide["parameters"] for name, guide in found.items()} == counts
    assert (digits / "mnist_tridiagonal.png").is_file()


@IN_BOTH
def test_mnist_attacks(backend, digits, monkeypatch):
    """Digits are learnt without dropout."""
    import mnist_attacks

    monkeypatch.setattr(mnist_attacks, "COUNTS", (2,))
    monkeypatch.setattr(mnist_attacks, "TIMED_STEPS", 2)
    monkeypatch.setattr(mnist_attacks, "TARGETED_STEPS", 2)
    monkeypatch.setattr(mnist_attacks, "LEVELS", np.asarray([0.0, 0.5]))
    options = f"--hidden 20 --steps 60 --images 20 --backend {backend}".split()
    nets = ["--nets", "deterministic", "α = 0.5 without draws"]
    mnist_attacks.main(["--data", str(digits), "--out", str(digits), *options, *nets])
    found = json.loads((digits / "mnist_attacks.json").read_text())
    signs = found["attacks"]["deterministic"]["signs"]
    assert signs["accuracy"][0] > 0.9 > signs["accuracy"][-1]
    assert all(seconds > 0 for seconds in found["seconds_per_step"].values())
    assert (digits / "mnist_attacks.png").is_file()
