"""Write the tables of the experiments' pages from their JSON files: python docs/experiments.py.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME is one of TABLES.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import experiments_accuracy
import experiments_attacks
import experiments_convolutional
import experiments_covariance
import experiments_dependence
import experiments_effects
import experiments_joint
import experiments_nested
import experiments_nested_peers
import experiments_peers
import experiments_pruning
import experiments_vbp
import numpy as np
from how_fast import table
from scipy.stats import chisquare

DOCS = Path(__file__).parent
FOLDER = DOCS / "experiments"
OWN = ("dropout", "tridiagonal", "vbp", "nuts", "on_gpu", "pruning", "dependence", "covariances")
OWN += ("held_draws", "nested", "nested_peers")
PAGES = (
    *(FOLDER / f"{name}.md" for name in (*OWN, "backward_covariance", "convolutional_nets")),
    *(
        DOCS / f"{name}.md"
        for name in ("accuracy", "benchmarks", "coming_from", "effects", "index", "maths")
    ),
    DOCS.parent / "README.md",
)
BLOCK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.S)
SCORE, DRAWS, BINS = "test_log_likelihood", 99, 10
MASKS, CLOSED = "α = 0.5", "α = 0.5 without draws"
# Of Li and Gal 2017 for α = 0.5: the paper's numbers, not ours.
PAPER = dict(boston=-2.38, concrete=-2.88, energy=-0.74, kin8nm=1.03, naval=2.80, power=-2.78)
PAPER |= dict(protein=-2.87, wine=-0.92, yacht=-1.08)


def read(name: str) -> dict[str, Any]:
    """One file of results."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def of_markdown(page: str) -> Iterator[dict[str, str]]:
    """The rows of a page that a benchmark writes itself, by the names of their columns."""
    head: list[str] | None = None
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells
        elif not set(line) <= set("|- "):
            yield dict(zip(head, cells, strict=False))


def uncertain(mean: float, error: float, digits: int, sign: str = "") -> str:
    """A mean with its standard error."""
    return f"{mean:{sign}.{digits}f} ± {error:.{digits}f}"


def scores(found: dict[str, Any], methods: Iterable[str], kind: str = SCORE) -> list[str]:
    """Mean ± standard error of each method on one set."""
    digits = 3 if kind == SCORE else 2
    parts = (found[method][kind] for method in methods)
    return [uncertain(part["mean"], part["standard_error"], digits) for part in parts]


def gains(found: dict[str, Any], pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Mean ± standard error of the differences on the same splits."""
    cells = []
    for better, worse in pairs:
        difference = np.subtract(*(found[name][SCORE]["per_split"] for name in (better, worse)))
        error = difference.std(ddof=1) / len(difference) ** 0.5
        cells.append(uncertain(difference.mean(), error, 3, "+"))
    return cells


def dropout_scores() -> str:
    """Of every method, beside the paper."""
    results = read("uci_dropout")
    methods = list(next(iter(results.values())))
    rows = [
        [name, str(len(found[MASKS][SCORE]["per_split"])), *scores(found, methods)]
        for name, found in results.items()
    ]
    rows = [[*row, f"{PAPER[row[0]]:.2f}"] for row in rows]
    return table(["set", "splits", *methods, f"paper, {MASKS}"], rows)


def dropout_gains() -> str:
    """Split by split, and what a step costs."""
    pairs = [(MASKS, "α = 0"), ("α = 1", "α = 0"), (CLOSED, MASKS)]
    rows = []
    for name, found in read("uci_dropout").items():
        seconds = [found[method]["seconds_per_step"] for method in (CLOSED, MASKS)]
        rows.append([name, *gains(found, pairs), f"{seconds[0] / seconds[1]:.2f}"])
    head = ["set", *(f"{better} − {worse}" for better, worse in pairs)]
    return table([*head, "time of a step, without draws / by ten masks"], rows)


def tridiagonal(kind: str) -> str:
    """Of every posterior."""
    results = read("uci_tridiagonal")
    methods = list(next(iter(results.values())))
    rows = [[name, *scores(found, methods, kind)] for name, found in results.items()]
    return table(["set", *methods], rows)


def tridiagonal_gains() -> str:
    """Free scales beside mean field, with what ρ was learnt."""
    rows = []
    for name, found in read("uci_tridiagonal").items():
        groups = found["free scales"]["groups"].items()
        learnt = [f"{part['rho']:.2f}" for group, part in groups if group.endswith("weight")]
        rows.append([name, *gains(found, [("free scales", "mean field")]), *learnt])
    return table(
        ["set", "free scales − mean field", "ρ, hidden weights", "ρ, output weights"], rows
    )


def five_units() -> str:
    """Of 5 hidden units, beside 50."""
    few, many = read("uci_tridiagonal_5_units"), read("uci_tridiagonal")
    methods = ["mean field", "proportional"]
    rows = []
    for name, found in few.items():
        both = [gains(results[name], [("proportional", "mean field")]) for results in (few, many)]
        rows.append([name, *scores(found, methods), *both[0], *both[1]])
    head = [*(f"{method}, 5 units" for method in methods), "difference", "difference, 50 units"]
    return table(["set", *head], rows)


def correlated() -> str:
    """What ρ gains under scales of the same kind."""
    pairs = [("proportional", "proportional, ρ = 0")]
    few, many = read("uci_tridiagonal_5_units"), read("uci_tridiagonal")
    rows = [[name, *gains(found, pairs), *gains(many[name], pairs)] for name, found in few.items()]
    return table(["set", "gain by ρ, 5 units", "gain by ρ, 50 units"], rows)


def more_units() -> str:
    """What 5 hidden units gain over 50 on the splits that both have."""
    few, many = read("uci_tridiagonal_5_units"), read("uci_tridiagonal")
    rows = []
    for name in few:
        cells = [name]
        for method in ("mean field", "proportional"):
            a, b = (results[name][method][SCORE]["per_split"] for results in (few, many))
            both = {key: {SCORE: {"per_split": p[: len(a)]}} for key, p in (("5", a), ("50", b))}
            cells += gains(both, [("5", "50")])
        rows.append(cells)
    return table(["set", "5 − 50 units, mean field", "5 − 50 units, proportional"], rows)


def digits() -> str:
    """Of MNIST, a row for each posterior."""
    rows = []
    for name, found in read("mnist_tridiagonal").items():
        draws, width = found["draws"], found["width"]
        numbers = [draws["accuracy"], draws["log_likelihood"], draws["calibration_error"]]
        cells = [f"{number:.3f}" for number in numbers]
        wide = [width["right"]["mean"], width["wrong"]["mean"], found["wider_if_wrong"]]
        count = f"{found['parameters']:,}".replace(",", " ")
        rows.append([name, count, f"{found['loss']:.0f}", *cells, *(f"{w:.2f}" for w in wide)])
    head = ["posterior", "parameters", "loss", "accuracy", "test log-likelihood"]
    head += ["calibration error", "width, right", "width, wrong", "wider if wrong"]
    return table(head, rows)


def digits_groups() -> str:
    """ρ and τ of the weights by layer."""
    rows = []
    for name, found in read("mnist_tridiagonal").items():
        groups = {k: part for k, part in found["groups"].items() if k.endswith("weight")}
        if any(part["rho"] for part in groups.values()):
            taus = [f", {part['tau']:.2f}" if part["tau"] else "" for part in groups.values()]
            values = (f"{part['rho']:.2f}" for part in groups.values())
            rows.append([name, *map("".join, zip(values, taus, strict=True))])
    return table(["ρ (and τ) of the weights", "first", "second", "third", "output"], rows)


def uniform_ranks() -> str:
    """The p-values of simulation-based calibration."""
    rows = []
    for model, methods in read("simulation_based_calibration").items():
        for name in methods["mean field"]:
            counts = [
                np.bincount(np.asarray(ranks[name]) * BINS // (DRAWS + 1), minlength=BINS)
                for ranks in methods.values()
            ]
            rows.append([model, name, *(f"{chisquare(count).pvalue:.2g}" for count in counts)])
    return table(["model", "parameter", "p, mean field", "p, linear response"], rows)


def networks() -> str:
    """Of at_the_optimum.md, which a benchmark writes."""
    rows = [
        [row["layers"], row["covariance"], row["stated"], row["drawn"], row["by"]]
        for row in of_markdown("at_the_optimum.md")
        if (row["host"], row["guide"], row["objective"], row["likelihood"])
        == ("pyro", "DVIGuide", "ELBO", "Normal")
    ]
    head = ["hidden layers", "covariance", "in closed form", "by draws", "difference"]
    return table(head, sorted(rows, key=lambda row: row[0]))


def posteriors() -> str:
    """Ratios of some posteriors of posteriordb.md, which a benchmark writes."""
    names = ("earnings-logearn_interaction_z", "kidiq-kidscore_interaction", "diamonds-diamonds")
    names += ("nes1972-nes", "mesquite-mesquite", "eight_schools-eight_schools_noncentered")
    methods = ("mean field", "linear response", "AutoMultivariateNormal", "NUTS")
    found: dict[str, dict[str, str]] = {}
    for row in of_markdown("experiments/posteriordb.md"):
        found.setdefault(row["posterior"], row)  # NumPyro stands first
    rows = [
        [f"`{name}`", *(re.sub(r"^[^·]*· (.*?) ·.*", r"\1", found[name][m]) for m in methods)]
        for name in names
    ]
    return table(["standard deviations over the reference's: median (range)", *methods], rows)


GPU_RUNS = {
    "Pyro": "on_gpu/pyro",
    "NumPyro, JAX's default": "on_gpu/numpyro",
    'NumPyro, `"highest"`': "on_gpu/numpyro_highest",
}


def gpu_differences() -> str:
    """The largest difference of any case from the processor, relative to the largest entry."""
    rows = []
    for title, name in GPU_RUNS.items():
        for precision in ("float32", "float64"):
            found = read(name)["differences"].items()
            exact = [part for case, part in found if case.endswith(precision) and "loss" in part]
            largest = (max(part[kind] for part in exact) for kind in exact[0])
            rows.append([title, precision, str(len(exact)), *(f"{one:.0e}" for one in largest)])
    return table(["", "", "cases", "loss", "gradients", "mean", "variance"], rows)


def gpu_times() -> str:
    """Milliseconds of a loss with its gradients."""
    rows = []
    for host, name in list(GPU_RUNS.items())[:2]:
        for found in read(name)["times"]:
            (reference, first), *others = found["seconds"].items()
            cells = [f"{name} {1e3 * one:.3g} ({one / first:.2g})" for name, one in others]
            place = "GPU" if found["device"] == "cuda" else "processor"
            row = [host.split(",")[0], found["model"], place, f"{1e3 * first:.3g}"]
            rows.append([*row, ", ".join(cells)])
    return table(["", "model", "on", f"{reference}, ms", "closed form, ms (ratio)"], rows)


TABLES = {
    "dropout, scores": dropout_scores,
    "dropout, differences": dropout_gains,
    "tridiagonal, scores": lambda: tridiagonal(SCORE),
    "tridiagonal, RMSE": lambda: tridiagonal("rmse"),
    "tridiagonal, free scales": tridiagonal_gains,
    "tridiagonal, five units": five_units,
    "tridiagonal, five units beside fifty": more_units,
    "tridiagonal, gain by ρ": correlated,
    "tridiagonal, digits": digits,
    "tridiagonal, digits by layer": digits_groups,
    "simulation-based calibration": uniform_ranks,
    "networks at the optimum": networks,
    "posteriors": posteriors,
    "GPU, differences": gpu_differences,
    "GPU, times": gpu_times,
}
_OTHERS = experiments_accuracy, experiments_attacks, experiments_convolutional
_OTHERS += experiments_covariance, experiments_dependence, experiments_joint, experiments_nested
_OTHERS += (experiments_effects,)
_OTHERS += experiments_nested_peers, experiments_peers, experiments_pruning, experiments_vbp
for _title, _make in (row for module in _OTHERS for row in module.TABLES.items()):
    TABLES[_title] = lambda make=_make: make(lambda name: read(name))


def written(text: str) -> str:
    """A page with its tables made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
