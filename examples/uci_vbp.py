"""Variance back-propagation on the UCI regression sets.

    python examples/uci_vbp.py --data DIR --out results

DIR holds uci/NAME.npz with arrays X [N, D], y [N] and test_mask [splits, N]. As in Haussmann et al.
2019, table 1: one hidden layer of 50 ReLUs (100 for protein), priors N(0, 1/10) of the weights,
Normal noise whose precision starts at 1 and is set after every epoch, Adam at a rate of 0.01, and
the paper's mini-batches and initial values. Biases have no distribution, as in the authors' code.

The paper does not say how long it trained. Here a set is trained for that number of epochs, of 30,
100 and 300, by which the predictions of a tenth of its training rows are best, in the mean of the
first two splits; and the rate falls to zero along a cosine. --constant leaves the rate as it is.

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
from optax import cosine_decay_schedule
from regression import Split, scores, standardise
from tqdm import tqdm
from uci_regression import HIDDEN, load, run_all, summarise, table

from numpyro_moments import DeterministicELBO, Fit, VBPGuide, fit, predict

SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
BATCHES = {"boston": 16, "energy": 16, "yacht": 16, "concrete": 32, "wine": 32, "protein": 256}
SPLITS = dict.fromkeys(("kin8nm", "naval", "power", "protein"), 5)  # else 20
PRECISION = 10.0  # of the prior
EPOCHS = (30, 100, 300)
RATE = 0.01


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "uci_vbp.json"
    results = json.loads(file.read_text()) if file.is_file() else {}
    for name in options.sets:
        kind = f"{options.rules}, constant rate" if options.constant else options.rules
        results.setdefault(name, {})[kind] = run_set(options, name)
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
    parser.add_argument("--constant", action="store_true", help="a rate that does not fall")
    parser.add_argument("--validated", type=int, default=2, help="splits to choose epochs by")
    parser.add_argument("--workers", type=int, default=1, help="processes over the splits")
    return parser.parse_args(arguments)


def run_set(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Choose the number of epochs of a set, then train and score its splits."""
    masks = load(options.data, name)["test_mask"]
    number = min(options.splits or SPLITS.get(name, len(masks)), len(masks))
    chosen = range(min(options.validated, number))
    trials = [(options, name, split, epochs, True) for epochs in EPOCHS for split in chosen]
    found = list(run_all(scored, trials, options.workers))
    held_out = np.reshape([own for own, *_ in found], [len(EPOCHS), -1]).mean(1)
    epochs = EPOCHS[int(held_out.argmax())]
    jobs = [(options, name, split, epochs, False) for split in range(number)]
    found = tqdm(run_all(scored, jobs, options.workers), total=number, desc=name, leave=False)
    own, errors, noise, seconds = map(list, zip(*found, strict=True))
    result = {
        "test_log_likelihood": summarise(own),
        "rmse": summarise(errors),
        "epochs": epochs,
        "held_out_log_likelihood": dict(zip(map(str, EPOCHS), held_out.tolist(), strict=True)),
        "noise": float(np.mean(noise)),
        "seconds_per_split": float(np.median(seconds)),
    }
    score = result["test_log_likelihood"]
    tqdm.write(f"{name}: {epochs} epochs, {score['mean']:.3f} ± {score['standard_error']:.3f}")
    return result


def scored(job: tuple) -> tuple[float, float, float, float]:
    """Log-likelihood and RMSE of rows that are left out, the scale of the noise, and seconds."""
    options, name, number, epochs, validates = job
    arrays = load(options.data, name)
    x, y, left_out = arrays["X"], arrays["y"], arrays["test_mask"][number]
    if validates:
        x, y = x[~left_out], y[~left_out]
        left_out = np.random.default_rng(number).permutation(len(y)) < len(y) // 10
    split = standardise(x, y, left_out)
    model = partial(network, HIDDEN.get(name, 50))
    trained = fitted(model, split, BATCHES.get(name, 64), epochs, options, number)
    how = {"covariance": "diagonal", "rules": options.rules}
    found = predict(model, trained, split.x_test, **how)["obs"]
    score = scores(split, found.log_prob(jnp.asarray(split.y_test)), found.mean)
    return *score, float(trained.params["sigma"]), trained.seconds["fitting"]


def fitted(
    model: Any, split: Split, batch: int, epochs: int, options: argparse.Namespace, seed: int
) -> Fit:
    steps = epochs * (len(split.x_train) // batch)
    return fit(
        model,
        VBPGuide(),
        split.x_train,
        split.y_train,
        objective=DeterministicELBO(covariance="diagonal", rules=options.rules),
        batch_size=batch,
        steps=steps,
        learning_rate=RATE if options.constant else cosine_decay_schedule(RATE, steps),
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
