"""Variance back-propagation on the UCI regression sets.

    python examples/uci_vbp.py --data DIR --out results

DIR holds uci/NAME.npz with arrays X [N, D], y [N] and test_mask [splits, N]. As in Haussmann et al.
2019, table 1: one hidden layer of 50 ReLUs (100 for protein), priors N(0, 1/10) of the weights,
Normal noise whose precision starts at 1 and is set after every epoch, Adam at a rate of 0.01, and
the paper's mini-batches and initial values. Biases have no distribution, as in the authors' code.

The paper does not say how long it trained. Here a set is trained for the number of epochs after
which the predictions of a tenth of its training rows are best, in the mean of five splits.

--rules takes the rules of the paper ("vbp") or exact ones. Writes a JSON file, to which later sets
are added. NumPyro, in single precision. JAX_COMPILATION_CACHE_DIR=FOLDER lets the splits of a set
share their compiled programs.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from regression import Split, scores, standardise
from tqdm import tqdm
from uci_regression import HIDDEN, load, run_all, summarise, table

from numpyro_moments import DeterministicELBO, VBPGuide, fit, predict

SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
BATCHES = {"boston": 16, "energy": 16, "yacht": 16, "concrete": 32, "wine": 32, "protein": 256}
SPLITS = dict.fromkeys(("kin8nm", "naval", "power", "protein"), 5)  # else 20
PRECISION = 10.0  # of the prior
LOOK = 10  # epochs between two looks at rows that are held out


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "uci_vbp.json"
    results = json.loads(file.read_text()) if file.is_file() else {}
    for name in options.sets:
        results.setdefault(name, {})[options.rules] = run_set(options, name)
        file.write_text(json.dumps(results, indent=2) + "\n")
    kinds = {kind for found in results.values() for kind in found}
    done = sorted(kind for kind in kinds if all(kind in found for found in results.values()))
    print(table(results, done))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that holds uci/*.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS, metavar="SET")
    parser.add_argument("--rules", choices=["vbp", "exact"], default="vbp")
    parser.add_argument("--splits", type=int, help="number of splits (20, of large sets 5)")
    parser.add_argument("--epochs", type=int, default=500, help="at most (%(default)s)")
    parser.add_argument("--validated", type=int, default=5, help="splits to choose epochs by")
    parser.add_argument("--workers", type=int, default=1, help="processes over the splits")
    return parser.parse_args(arguments)


def run_set(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Choose the number of epochs of a set, then train and score its splits."""
    masks = load(options.data, name)["test_mask"]
    number = min(options.splits or SPLITS.get(name, len(masks)), len(masks))
    trials = [(options, name, split) for split in range(min(options.validated, number))]
    curves = list(run_all(validated, trials, options.workers))
    epochs = LOOK * (1 + int(np.mean(curves, axis=0).argmax()))
    jobs = [(options, name, split, epochs) for split in range(number)]
    found = tqdm(run_all(scored, jobs, options.workers), total=number, desc=name, leave=False)
    own, errors, noise, seconds = map(list, zip(*found, strict=True))
    result = {
        "test_log_likelihood": summarise(own),
        "rmse": summarise(errors),
        "epochs": epochs,
        "held_out_log_likelihood": np.mean(curves, axis=0).tolist(),
        "noise": float(np.mean(noise)),
        "seconds_per_split": float(np.median(seconds)),
    }
    score = result["test_log_likelihood"]
    tqdm.write(f"{name}: {epochs} epochs, {score['mean']:.3f} ± {score['standard_error']:.3f}")
    return result


def validated(job: tuple) -> list[float]:
    """Mean log-likelihood of a tenth of the training rows along a training with the others."""
    options, name, number = job
    arrays = load(options.data, name)
    x, y = (arrays[key][~arrays["test_mask"][number]] for key in "Xy")
    held_out = np.random.default_rng(number).permutation(len(y)) < len(y) // 10
    split = standardise(x, y, held_out)
    part = (jnp.asarray(split.x_test), jnp.asarray(split.y_test))
    looks = options.epochs // LOOK
    trained = training(options, name, split, number)(
        epochs=options.epochs,
        held_out=part,
        every=LOOK * (len(split.x_train) // BATCHES.get(name, 64)),
        patience=looks,
    )
    return [value / held_out.sum() for value in trained.held_out.values()]


def scored(job: tuple) -> tuple[float, float, float, float]:
    """Log-likelihood and RMSE of the test rows, the scale of the noise, and seconds."""
    options, name, number, epochs = job
    arrays = load(options.data, name)
    split = standardise(arrays["X"], arrays["y"], arrays["test_mask"][number])
    trained = training(options, name, split, number)(epochs=epochs)
    train = training(options, name, split, number)
    trained, (model, *_) = train(epochs=epochs), train.args
    how = {"covariance": "diagonal", "rules": options.rules}
    found = predict(model, trained, split.x_test, **how)["obs"]
    score = scores(split, found.log_prob(jnp.asarray(split.y_test)), found.mean)
    return *score, float(trained.params["sigma"]), trained.seconds["fitting"]


def training(options: argparse.Namespace, name: str, split: Split, seed: int) -> partial:
    """The training of a network, which lacks its length."""
    return partial(
        fit,
        partial(network, HIDDEN.get(name, 50)),
        VBPGuide(),
        split.x_train,
        split.y_train,
        objective=DeterministicELBO(covariance="diagonal", rules=options.rules),
        batch_size=BATCHES.get(name, 64),
        learning_rate=0.01,
        precision="type-II",
        by_draws=False,
        progress_bar=False,
        seed=seed,
    )


def network(hidden: int, x: jax.Array, y: jax.Array | None = None) -> None:
    """One hidden layer of ReLUs, and Normal noise."""
    h = jax.nn.relu(linear("first", x, hidden))
    f = linear("output", h, 1)[..., 0]
    sigma = numpyro.param("sigma", 1.0, constraint=constraints.positive)
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(f, sigma), obs=y)


def linear(name: str, x: jax.Array, outputs: int) -> jax.Array:
    """A linear map with random weights and certain biases."""
    prior = dist.Normal(0.0, PRECISION**-0.5).expand([x.shape[-1], outputs]).to_event(2)
    return x @ numpyro.sample(f"{name}.weight", prior) + numpyro.param(
        f"{name}.bias", jnp.zeros(outputs)
    )


if __name__ == "__main__":
    main()
