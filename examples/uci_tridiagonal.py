"""Tridiagonal posteriors of networks on the UCI regression sets, against mean field.

    python examples/uci_tridiagonal.py --data DIR --out results

DIR holds uci/NAME.npz with arrays X [N, D], y [N] and test_mask [splits, N]. Network, prior,
initial values and training are those of examples/uci_regression.py, by the closed-form ELBO of
independent components; what is tridiagonal is the posterior of Posch and Pilz 2020:

free scales           one standard deviation for each weight, and one correlation ρ for each site
proportional          the paper's: standard deviations τ |m|, one τ and one ρ for each site
proportional, ρ = 0   the paper's baseline of independent components
proportional, slow    "proportional" whose KL divergence has its full weight after half the steps

Writes a JSON file, to which later sets are added, and a picture of the gains over mean field on the
same splits. JAX_COMPILATION_CACHE_DIR=FOLDER lets the splits of a set share compiled programs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import uci_regression
from tqdm import tqdm
from uci_regression import gain, load, number_of_steps, picture, run_all, summarise, table

SETS = ("boston", "concrete", "energy", "yacht")
BASELINE = "mean field"
COMPARED = {  # the family, and the share of the steps that the KL divergence takes to rise
    "mean field": ("mean field", 0.0),
    "free scales": ("free scales", 0.0),
    "proportional": ("proportional", 0.0),
    "proportional, ρ = 0": ("proportional, ρ = 0", 0.0),
    "proportional, slow": ("proportional", 0.5),
}


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "uci_tridiagonal.json"
    results = json.loads(file.read_text()) if file.is_file() else {}
    for name in options.sets:
        for guide in options.guides:
            results.setdefault(name, {})[guide] = run_guide(options, name, guide)
            file.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    show(results, options.out)


def show(results: dict[str, dict], out: Path) -> None:
    """Print and draw what all sets have."""
    done = [name for name in COMPARED if all(name in found for found in results.values())]
    print(table(results, done))
    if BASELINE in done and len(done) > 1:
        for name, found in results.items():
            print(name, ", ".join(difference(found, guide) for guide in done if guide != BASELINE))
        picture(results, done, BASELINE).savefig(out / "uci_tridiagonal.png", dpi=150)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that holds uci/*.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS, metavar="SET")
    parser.add_argument("--splits", type=int, default=20, help="at most (%(default)s)")
    parser.add_argument("--guides", nargs="*", choices=list(COMPARED), default=list(COMPARED))
    parser.add_argument("--hidden", type=int, help="hidden units (50)")
    parser.add_argument("--steps", type=int, help="gradient steps (as uci_regression.py)")
    parser.add_argument("--method", choices=["dvi", "ddvi"], default="ddvi", help="(%(default)s)")
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="numpyro")
    parser.add_argument("--workers", type=int, default=1, help="processes over the splits")
    return parser.parse_args(arguments)


def run_guide(options: argparse.Namespace, name: str, guide: str) -> dict:
    """Scores of all splits of a set; scales and correlations averaged over them."""
    mask, (family, rise) = load(options.data, name)["test_mask"], COMPARED[guide]
    of_set = uci_regression.parse(["--data", str(options.data), "--set", name])
    for key in ("method", "backend", "workers", "hidden"):
        setattr(of_set, key, getattr(options, key))
    of_set.family = family
    of_set.steps = options.steps or number_of_steps(mask, of_set.batch_size)
    of_set.kl_warm_up = int(rise * of_set.steps) or None
    jobs = [(of_set, split) for split in range(min(options.splits, len(mask)))]
    runs = tqdm(run_all(uci_regression.run, jobs, options.workers), total=len(jobs), leave=False)
    _, log_likelihoods, errors, groups = zip(*runs, strict=True)
    found = {
        "steps": of_set.steps,
        "test_log_likelihood": summarise(list(log_likelihoods)),
        "rmse": summarise(list(errors)),
        "groups": {group: averaged([each[group] for each in groups]) for group in groups[0]},
    }
    score = found["test_log_likelihood"]
    tqdm.write(f"{name}, {guide}: {score['mean']:.3f} ± {score['standard_error']:.3f}")
    return found


def averaged(groups: list[dict[str, float | None]]) -> dict[str, float]:
    """The mean of τ, of ρ and of |ρ| over the splits."""
    rhos, taus = ([each[key] for each in groups] for key in ("rho", "tau"))
    means = {"tau": taus, "rho": rhos, "size_of_rho": np.abs(rhos)}
    return {name: float(np.mean(values)) for name, values in means.items()}


def difference(found: dict, guide: str) -> str:
    mean, error = gain(found, guide, BASELINE)
    return f"{guide}: {mean:+.3f} ± {error:.3f}"


if __name__ == "__main__":
    main()
