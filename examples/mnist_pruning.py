"""A network that switches off most of its weights: sparse variational dropout without draws.

    python examples/mnist_pruning.py --data DIR --out results

DIR holds images/mnist.npz with arrays x_train, y_train, x_test and y_test. The weights of a network
784-100-10 have a LogUniform prior, the biases are parameters. The divergence comes in over the
first epochs, as Molchanov, Ashukha and Vetrov (2017) advise; beside it stands the same network with
priors N(0, 1 / inputs). The last 10 000 images of the training set are held out, and choose the
threshold; the test images judge it. Pyro.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from mnist_attacks import Data, load
from mnist_lenet import reseed
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn
from tqdm import tqdm

from pyro_moments import (
    DeterministicELBO,
    DVIGuide,
    LogUniform,
    PruningReport,
    fit,
    pruning_report,
    smaller_network,
)

BATCH, HELD_OUT, RATE, WARM_UP = 200, 10_000, 2e-3, 0.3
THRESHOLDS = -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0


class Perceptron(PyroModule):
    """784-100-10 with priors of the weights."""

    def __init__(self, prior: str) -> None:
        super().__init__()
        layers = [PyroModule[nn.Linear](784, 100), PyroModule[nn.Linear](100, 10)]
        for layer in layers:
            shape = layer.weight.shape
            fn = LogUniform() if prior == "log-uniform" else dist.Normal(0.0, shape[1] ** -0.5)
            layer.weight = PyroSample(fn.expand(shape).to_event(2))
            nn.init.zeros_(layer.bias)
        self.net = PyroModule[nn.Sequential](layers[0], nn.ReLU(), layers[1])

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Classes of images [n, 784]."""
        logits = self.net(x)
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def he_normal(site: dict) -> Tensor:
    """Means of weights: N(0, 2 / inputs)."""
    shape = site["fn"].event_shape
    return torch.randn(shape) * (2 / shape[1]) ** 0.5


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    data = load(options.data, 10_000)
    results = {prior: trained(prior, data, options) for prior in ("log-uniform", "normal")}
    text = json.dumps({"epochs": options.epochs, **results}, indent=2)
    (options.out / "mnist_pruning.json").write_text(text + "\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with images/mnist.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--images", type=int, default=50_000, help="to train on (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def trained(prior: str, data: Data, options: argparse.Namespace) -> dict[str, Any]:
    """Train one network; return what is left of it at several thresholds."""
    reseed(options.seed)
    x, y = torch.as_tensor(data.x_train), torch.as_tensor(data.y_train)
    kept = min(options.images, len(x) - HELD_OUT)
    steps = options.epochs * (kept // BATCH)
    model = Perceptron(prior)
    result = fit(
        model,
        DVIGuide(init_loc_fn=he_normal, init_scale=0.01),
        x[:kept],
        y[:kept],
        objective=DeterministicELBO(covariance="diagonal"),
        batch_size=BATCH,
        epochs=options.epochs,
        learning_rate=lambda step: RATE * min(1.0, 1e-3 + 2 * (1 - step / steps)),
        kl_warm_up=int(WARM_UP * steps),
        by_draws=False,
    )
    test = torch.as_tensor(data.x_test), torch.as_tensor(data.y_test)
    held_out = x[-HELD_OUT:], y[-HELD_OUT:]
    chosen = pruning_report(model, result, x[:kept], y[:kept], held_out=held_out)
    tqdm.write(f"{prior}\n{chosen}")
    tested = pruning_report(
        model, result, x[:kept], y[:kept], held_out=test, threshold=chosen.threshold
    )
    return {
        "seconds": result.seconds["fitting"],
        "whole": vars(tested.whole) | {"threshold": None},
        "chosen": described(tested, model, test),
        "thresholds": [vars(tested.at(threshold).pruned) for threshold in THRESHOLDS],
    }


def described(report: PruningReport, model: Perceptron, test: tuple[Tensor, Tensor]) -> dict:
    """What is left, and the accuracy of the smaller network, which is a plain one."""
    small = smaller_network(model.net, report)
    with torch.no_grad():
        right = small(test[0]).argmax(-1) == test[1]
    inputs = report.units["net.0.weight"][1]
    return {
        **vars(report.pruned),
        "bytes_dense": report.bytes_dense,
        "bytes_sparse": report.bytes_sparse,
        "inputs_off": len(inputs),
        "hidden_units": small[0].out_features,
        "accuracy_of_smaller_network": right.double().mean().item(),
    }


if __name__ == "__main__":
    main()
