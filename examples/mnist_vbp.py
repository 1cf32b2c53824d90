"""Variance back-propagation on digits: a strided LeNet, and one pass over the data.

    python examples/mnist_vbp.py --data DIR --out results

DIR holds images/mnist.npz with arrays x_train, y_train, x_test and y_test. The networks are those
of Haussmann et al. 2019: the strided LeNet of table 4 (lenet), trained for ten epochs here and
a hundred there, and one hidden layer of 500 ReLUs that sees every digit once, as in table 3
(dense). Priors N(0, 1/100) of the weights, biases without a distribution, the paper's initial
values, Adam at a rate of 0.001; mini-batches, which it does not state, of 128 and 32.

"vbp" trains by the closed-form ELBO with the paper's rules and predicts by them; "vbp, classes by
points" takes the paper's rules for the layers, and this library's for classes; "draws", the paper's
baseline VarOut, by one draw of the pre-activations a step, and predicts by 100 draws. All start at
the same weights and see the same mini-batches. Writes a JSON file, to which later runs are added.
Pyro.
"""

from __future__ import annotations

import argparse
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from mnist_attacks import load
from mnist_lenet import StridedLeNet, bayesian, measures, predicted, reseed
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from tqdm import tqdm

from moment_calculus.errors import ApproximationWarning
from pyro_moments import DeterministicELBO, VBPGuide, fit

RULES = {"covariance": "diagonal", "rules": "vbp"}
POINTS = {**RULES, "categorical": "points"}
SAMPLED = {"propagation": "sampled"}
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # options of training, of predictions
    "vbp": (RULES, RULES),
    "vbp, classes by points": (POINTS, POINTS),
    "draws": (SAMPLED, {**SAMPLED, "num_particles": 100}),
}
EPOCHS, BATCHES = {"lenet": 10, "dense": 1}, {"lenet": 128, "dense": 32}


class Dense(PyroModule):
    """One hidden layer of ReLUs with Gaussian weights."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = bayesian(PyroModule[nn.Linear](784, 500))
        self.output = bayesian(PyroModule[nn.Linear](500, 10))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Classes of images [n, 784]."""
        logits = self.output(torch.relu(self.hidden(x)))
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "mnist_vbp.json"
    results = json.loads(file.read_text()) if file.is_file() else {}
    data = load(options.data, options.images)
    for net in options.nets:
        for method in options.methods:
            results.setdefault(net, {})[method] = trained(data, net, method, options)
            file.write_text(json.dumps(results, indent=2) + "\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with images/mnist.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--nets", nargs="*", choices=list(EPOCHS), default=list(EPOCHS))
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--steps", type=int, help="updates, in place of epochs")
    parser.add_argument("--rate", type=float, default=1e-3, help="of Adam (%(default)s)")
    parser.add_argument("--falling", action="store_true", help="let it fall to zero on a cosine")
    parser.add_argument("--images", type=int, default=10_000, help="test images (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def trained(data: Any, net: str, method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train one posterior; return its measures."""
    reseed(options.seed)
    # The expansion of the logsumexp, which this warns of, is what the paper trains by.
    warnings.simplefilter("ignore", ApproximationWarning)
    model: Any = StridedLeNet() if net == "lenet" else Dense()
    training, prediction = METHODS[method]
    batch = BATCHES[net]
    steps = options.steps or EPOCHS[net] * (len(data.x_train) // batch)
    falling = {"scheduler": partial(CosineAnnealingLR, T_max=steps)} if options.falling else {}
    posterior = fit(
        model,
        VBPGuide(model),
        torch.as_tensor(data.x_train),
        torch.as_tensor(data.y_train),
        objective=DeterministicELBO(**training),
        steps=steps,
        batch_size=batch,
        optimiser=partial(torch.optim.Adam, lr=options.rate),
        by_draws=False,
        seed=options.seed,
        **falling,
    )
    found = measures(predicted(model, posterior, data, prediction), data.y_test)
    tqdm.write(f"{net}, {method}: test error {found['error']:.2%}")
    seconds = posterior.seconds["fitting"] / steps
    rate = {"rate": options.rate, "falling": options.falling}
    return {"steps": steps, **rate, "seconds_per_step": seconds, **found}


if __name__ == "__main__":
    main()
