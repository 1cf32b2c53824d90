"""Diagonal, backward and full covariance on the UCI regression sets, with two hidden layers.

    python examples/uci_covariance.py --data DIR --out results

DIR holds uci/NAME.npz with arrays X [N, D], y [N] and test_mask [splits, N]. A network with two
hidden layers of 50 ReLUs gives location and log variance of Normal noise; every set of weights has
an empirical-Bayes prior. The three objectives take the same initial values, mini-batches and number
of steps. Each trained posterior is scored by the prediction of its own covariance, and by 1000
draws of the weights.

Writes a JSON file, to which later sets are added. NumPyro, in single precision.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI
from numpyro.infer.svi import SVIState
from regression import Split, scores, standardise
from regression_numpyro import bayesian_linear, sampled_log_prob
from tqdm import tqdm
from uci_regression import gain, load, summarise, table

from numpyro_moments import DeterministicELBO, DVIGuide, predict

SETS = ("boston", "concrete", "energy", "kin8nm", "yacht")
COVARIANCES = ("diagonal", "backward", "full")
SPLITS = {"kin8nm": 5}  # else 20
HIDDEN = ("first", "second")


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "uci_covariance.json"
    results = json.loads(file.read_text()) if file.is_file() else {}
    for covariance in options.covariances:
        for name in options.sets:
            results.setdefault(name, {})[covariance] = run(options, name, covariance)
            file.write_text(json.dumps(results, indent=2) + "\n")
    done = [name for name in COVARIANCES if all(name in found for found in results.values())]
    print(table(results, done))
    for name, found in results.items() if {"backward", "diagonal"} <= set(done) else ():
        mean, error = gain(found, "backward", "diagonal")
        print(f"{name}: backward − diagonal {mean:+.3f} ± {error:.3f}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that holds uci/*.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS, metavar="SET")
    parser.add_argument("--covariances", nargs="*", choices=COVARIANCES, default=COVARIANCES)
    parser.add_argument("--splits", type=int, help="number of splits (20, of kin8nm 5)")
    parser.add_argument("--steps", type=int, default=40_000, help="updates (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="(%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-2, help="peak (%(default)s)")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, name: str, covariance: str) -> dict[str, Any]:
    """Train and score all splits of a set."""
    arrays = load(options.data, name)
    number = options.splits or SPLITS.get(name, len(arrays["test_mask"]))
    masks = arrays["test_mask"][:number]
    splits = [standardise(arrays["X"], arrays["y"], mask) for mask in masks]
    steps = options.steps
    trainer = Trainer(covariance, splits[0], steps, options.batch_size, options.learning_rate)
    rows = [
        trainer.scored(split, seed)
        for seed, split in enumerate(tqdm(splits, desc=f"{name} {covariance}", leave=False))
    ]
    own, by_draws, error, seconds = map(list, zip(*rows, strict=True))
    return {
        "test_log_likelihood": summarise(own),
        "by_draws": summarise(by_draws),
        "rmse": summarise(error),
        "steps": steps,
        "batch_size": options.batch_size,
        "seconds_per_split": float(np.median(seconds)),
    }


class Trainer:
    """Trains one network after another by programs that are compiled once."""

    def __init__(self, covariance: str, like: Split, steps: int, batch: int, rate: float) -> None:
        self.steps, self.batch, self.covariance = steps, batch, covariance
        self.model = network(len(like.x_train))
        self.guide = DVIGuide(self.model, init_scale=0.01)
        adam = optax.adam(optax.cosine_onecycle_schedule(steps, rate))
        elbo = DeterministicELBO(covariance=covariance)
        self.svi = SVI(self.model, self.guide, adam, elbo)
        first = self.svi.init(jax.random.key(0), like.x_train[:batch], like.y_train[:batch])
        self.start = self.svi.optim.get_params(first.optim_state)
        self.advance, self.predicted = jax.jit(self._advance), jax.jit(self._predicted)
        self.drawn = jax.jit(partial(sampled_log_prob, self.model, self.guide))

    def scored(self, split: Split, seed: int) -> tuple[float, ...]:
        """Log-likelihood of the test rows by the prediction and by draws, RMSE, and seconds."""
        start = time.perf_counter()
        params = self.trained(split, seed)
        seconds = time.perf_counter() - start
        own, error = scores(split, *self.predicted(params, split.x_test, split.y_test))
        draws = self.drawn(params, split.x_test, split.y_test)
        return own, scores(split, *draws)[0], error, seconds

    def trained(self, split: Split, seed: int) -> dict[str, jax.Array]:
        generator = np.random.default_rng(seed)
        start = {name: initial(name, value, generator) for name, value in self.start.items()}
        state = SVIState(self.svi.optim.init(start), None, jax.random.key(seed))
        rows = np.concatenate(list(self.epochs(len(split.x_train), generator)))
        rows = rows[: self.steps]
        return self.svi.get_params(self.advance(state, split.x_train, split.y_train, rows))

    def epochs(self, rows: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
        """Mini-batches without repetition, epoch after epoch."""
        count = rows // self.batch
        for _ in range(-(-self.steps // count)):
            yield generator.permutation(rows)[: count * self.batch].reshape(count, self.batch)

    def _advance(self, state: Any, x: jax.Array, y: jax.Array, rows: jax.Array) -> Any:
        def update(now: Any, batch: jax.Array) -> tuple[Any, None]:
            return self.svi.update(now, x[batch], y[batch])[0], None

        return jax.lax.scan(update, state, rows)[0]

    def _predicted(self, params: dict, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = predict(self.model, self.guide, params, x, covariance=self.covariance)["obs"]
        return found.log_prob(y), found.mean


def network(size: int) -> Callable:
    """Two hidden layers of ReLUs, and two outputs: location and log variance of the noise."""

    def model(x: jax.Array, y: jax.Array | None = None) -> jax.Array:
        hidden = x
        for name in HIDDEN:
            hidden = jax.nn.relu(bayesian_linear(name, hidden, 50))
        out = bayesian_linear("output", hidden, 2)
        with numpyro.plate("data", size if y is not None else len(x), len(x)):
            noisy = dist.Normal(out[..., 0], jnp.exp(0.5 * out[..., 1]))
            return numpyro.sample("obs", noisy, obs=y)

    return model


def initial(name: str, value: jax.Array, generator: np.random.Generator) -> jax.Array:
    """He's weights, and random biases of the first layer, which spread its kinks."""
    if not name.endswith("_auto_loc"):
        return value
    scale = float(name.startswith("first")) if value.ndim == 1 else (2 / value.shape[1]) ** 0.5
    return jnp.asarray(scale * generator.standard_normal(value.shape), value.dtype)


if __name__ == "__main__":
    main()
