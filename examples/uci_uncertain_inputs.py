"""Inputs that are missing or measured with noise: their moments against numbers in their place.

    python examples/uci_uncertain_inputs.py --data DIR --set boston --out boston.json

DIR holds uci/NAME.npz with arrays X [N, D], y [N] and test_mask [splits, N]. A fifth of the entries
of X is missing at random, or every entry of the standardised X has noise of standard deviation 0.5,
in the training and in the test rows. The network has one hidden layer of 50 ReLUs, a
heteroscedastic Normal likelihood and an empirical-Bayes prior on every set of weights.

imputed    missing entries are the mean of their column; noisy ones are as they were measured.
moments    missing entries have mean and variance of their column; noisy ones have the moments of
           the true value given the measured one.

Both train by BB-α with α = 1, the logarithm of what is expected of each datum over its inputs. The
ELBO (--alpha 0) takes the expectation of the logarithm: the noise of the inputs is learned as noise
of the observations, too, and counted twice in predictions.

Reported are the test log-likelihood, how many test rows 90 % intervals hold, and the paired
difference. NumPyro, in single precision.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from regression import Split, scores, standardise
from regression_numpyro import heteroscedastic_network, make_guide
from tqdm import tqdm
from uci_regression import gain, load, summarise

from numpyro_moments import BBAlphaELBO, DeterministicELBO, Moments, fit, predict

MISSING, NOISE, LEVEL = 0.2, 0.5, 0.9
KINDS, METHODS = ("missing", "noisy"), ("imputed", "moments")


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    arrays = load(options.data, options.set)
    results: dict[str, Any] = {"set": options.set, "steps": options.steps}
    for kind in KINDS:
        results[kind] = compared(options, arrays, kind)
        difference, error = gain(results[kind], "moments", "imputed")
        print(f"{kind}: moments − imputed {difference:+.3f} ± {error:.3f}")
    options.out.write_text(json.dumps(results, indent=2) + "\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that holds uci/*.npz")
    parser.add_argument("--set", default="boston", help="name of a set (%(default)s)")
    parser.add_argument("--splits", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=4000, help="updates (%(default)s)")
    parser.add_argument("--alpha", type=float, default=1.0, help="of BB-α (%(default)s)")
    parser.add_argument("--hidden", type=int, default=50, help="(%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="JSON file of the results")
    return parser.parse_args(arguments)


def compared(
    options: argparse.Namespace, arrays: dict[str, np.ndarray], kind: str
) -> dict[str, Any]:
    """Scores of both methods on the same splits."""
    rows: dict[str, list] = {method: [] for method in METHODS}
    masks = arrays["test_mask"][: options.splits]
    for seed, mask in enumerate(tqdm(masks, desc=kind, leave=False)):
        split = standardise(arrays["X"], arrays["y"], mask)
        for method, inputs in zip(METHODS, spoilt(split, kind, seed), strict=True):
            rows[method].append(scored(options, split, inputs, seed))
    names = "test_log_likelihood", "rmse", "coverage"
    return {
        method: {
            n: summarise([*part]) for n, part in zip(names, zip(*found, strict=True), strict=True)
        }
        for method, found in rows.items()
    }


def spoilt(split: Split, kind: str, seed: int) -> Iterator[tuple[Any, Any]]:
    """Training and test inputs by each method."""
    generator, parts = np.random.default_rng(seed), (split.x_train, split.x_test)
    if kind == "missing":
        holes = [np.where(generator.random(x.shape) < MISSING, np.nan, x) for x in parts]
        moments = [Moments.missing(x, columns_of=holes[0]) for x in holes]
        yield tuple(part.mean for part in moments)
        yield tuple(moments)
        return
    measured = [x + NOISE * generator.normal(size=x.shape).astype(x.dtype) for x in parts]
    yield tuple(measured)
    share = 1 / (1 + NOISE**2)  # of a standardised column with noise
    variance = np.float32(NOISE**2 * share)
    yield tuple(Moments(share * x, variance=np.full_like(x, variance)) for x in measured)


def objective(alpha: float) -> DeterministicELBO | BBAlphaELBO:
    if alpha == 0:
        return DeterministicELBO(covariance="backward")
    return BBAlphaELBO(alpha=alpha, covariance="backward")


def scored(
    options: argparse.Namespace, split: Split, inputs: tuple[Any, Any], seed: int
) -> tuple[float, float, float]:
    """Log-likelihood and RMSE of the test rows, and the share of them that intervals hold."""
    model = heteroscedastic_network(options.hidden)
    result = fit(
        model,
        make_guide(model),
        inputs[0],
        split.y_train,
        objective=objective(options.alpha),
        steps=options.steps,
        seed=seed,
        by_draws=False,
        progress_bar=False,
    )
    found = predict(model, result, inputs[1], covariance="backward")["obs"]
    low, high = map(np.asarray, found.interval(LEVEL))
    inside = np.mean((low < split.y_test) & (split.y_test < high))
    return *scores(split, found.log_prob(split.y_test), found.mean), float(inside)


if __name__ == "__main__":
    main()
