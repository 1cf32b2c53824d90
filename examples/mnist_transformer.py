"""A Bayesian transformer that reads digits row by row, trained without draws.

    python examples/mnist_transformer.py --data DIR --out results

DIR holds images/mnist.npz with arrays x_train, y_train, x_test and y_test. The 28 rows of an image
are the tokens: a linear map to 16 numbers, a place for each row, two blocks of
nn.TransformerEncoderLayer (two heads, 32 hidden units, LayerNorm), the mean over the rows, and a
linear map to the classes. All weights are random, with priors N(0, 1 / inputs) of matrices and
N(0, 0.3²) of vectors (around one for the scales of LayerNorm). Every weight is shared by all rows,
and queries, keys and values have one site: covariance="backward" knows what they have in common,
the other modes refuse.

In the end the loss that training used is compared with Pyro's Trace_ELBO of 10³ draws on the same
images, and test images are predicted. After 1000 steps of 16 images, some 1.9 s each on one core,
and 1200 more with a new schedule, the loss was 21 163, and 21 404 ± 33 by draws (1.1 % below), with
a test error of 7.0 %. The same steps with an older rule for LayerNorm, an expansion, ended 4.3 %
below: training had found rows in which one feature has most of the variance, where the expansion
states 0.82 of the standard deviations of draws.
Pyro, in its default mode.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from mnist_attacks import Data, load
from mnist_lenet import measures, predicted, reseed
from pyro.infer import Trace_ELBO
from pyro.nn import PyroModule, PyroSample
from pyro.nn.module import to_pyro_module_
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from tqdm import tqdm

from pyro_moments import DeterministicELBO, DVIGuide, Fit, fit

ROWS, WIDTH, HEADS, HIDDEN, BLOCKS = 28, 16, 2, 32, 2
BATCH, RATE, SCALE, PIECE = 16, 1e-2, 0.02, 50
METHOD = {"covariance": "backward"}


class Rows(PyroModule):
    """Two blocks of attention over the rows of an image, with Gaussian weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(28, WIDTH)
        self.blocks = nn.ModuleList(map(block, range(BLOCKS)))
        self.output = nn.Linear(WIDTH, 10)
        self.place = nn.Parameter(torch.zeros(ROWS, WIDTH))
        to_pyro_module_(self)
        for module in self.modules():
            bayesian(module)

    def forward(self, x: Tensor, y: Tensor | None = None, rows: int | None = None) -> Tensor:
        """Classes of images [n, 784], which count as so many rows."""
        hidden = self.embed(x.reshape(-1, ROWS, 28)) + self.place
        for layer in self.blocks:
            hidden = layer(hidden)
        logits = self.output(hidden.mean(1))
        with pyro.plate("data", rows or len(x), subsample_size=len(x)):
            return pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def block(_: int) -> nn.Module:
    """Attention and a hidden layer, each followed by LayerNorm."""
    return nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True)


def bayesian(module: nn.Module) -> None:
    """Give a module's own parameters priors."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        around = float(isinstance(module, nn.LayerNorm) and name == "weight")
        scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
        prior = dist.Normal(around, scale).expand(parameter.shape).to_event(parameter.dim())
        setattr(module, name, PyroSample(prior))


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    data = load(options.data, options.images)
    reseed(options.seed)
    model = Rows()
    posterior = fitted(model, data, options)
    found = measures(predicted(model, posterior, data, METHOD, PIECE), data.y_test)
    found.pop("reliability")
    results = {
        "test": found,
        "losses": losses(model, posterior.guide, data, options),
        "seconds_per_step": posterior.seconds["fitting"] / options.steps,
    }
    tqdm.write(json.dumps(results, indent=2))
    (options.out / "mnist_transformer.json").write_text(json.dumps(results, indent=2) + "\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with images/mnist.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--steps", type=int, default=200, help="updates (%(default)s)")
    parser.add_argument("--images", type=int, default=300, help="test images (%(default)s)")
    parser.add_argument("--draws", type=int, default=1000, help="of the ELBO (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def fitted(model: Any, data: Data, options: argparse.Namespace) -> Fit:
    """Train a mean-field posterior by Adam."""
    return fit(
        model,
        DVIGuide(model, init_scale=SCALE),
        torch.as_tensor(data.x_train),
        torch.as_tensor(data.y_train),
        objective=DeterministicELBO(**METHOD),
        steps=options.steps,
        batch_size=BATCH,
        optimiser=partial(torch.optim.Adam, lr=RATE),
        scheduler=partial(CosineAnnealingLR, T_max=options.steps),
        by_draws=False,  # they are compared below
        seed=options.seed,
    )


@torch.no_grad()
def losses(model: Any, guide: Any, data: Data, options: argparse.Namespace) -> dict[str, float]:
    """Losses on some training images, scaled to all of them, without draws and with them."""
    count, rows = options.images, len(data.x_train)
    images, classes = (torch.as_tensor(p[:count]) for p in (data.x_train, data.y_train))
    objective = DeterministicELBO(**METHOD)
    stated, plain = (objective.loss(model, guide, images, classes, n) for n in (rows, count))
    drawn = [
        Trace_ELBO().loss(model, guide, images, classes, rows)
        for _ in tqdm(range(options.draws), desc="draws")
    ]
    error = float(np.std(drawn)) / len(drawn) ** 0.5
    kl = stated - (stated - plain) * rows / (rows - count)
    return {"stated": stated, "kl": kl, "drawn": float(np.mean(drawn)), "standard_error": error}


if __name__ == "__main__":
    main()
