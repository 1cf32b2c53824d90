"""Simulation-based calibration of mean field and of linear response about it.

    python benchmarks/simulation_based_calibration.py [--sets 200] [--out docs/experiments]

Parameters are drawn from the prior of a regression and of a hierarchy, data given them, and the
fit by Newton's method, in Pyro and double precision. Where a posterior is right, the rank of a
parameter among its draws is uniform: a χ² test over ten bins says whether it is.

Source: Talts et al. 2018, Validating Bayesian inference algorithms with simulation-based
calibration.
"""

import json
import warnings
from functools import partial

import harness
import host_pyro as host
import numpy as np
import torch
from models import hierarchy, linear, regression_by
from pyro.infer import Predictive
from scipy.stats import chisquare

DRAWS, BINS, GROUPS = 99, 10, 20
METHODS = ("mean field", "linear response")
LOG_NORMAL = host.dist.LogNormal(0.0, 0.5)
MODELS = {
    "regression": regression_by(host, linear(host), LOG_NORMAL),
    "hierarchy": hierarchy(host, GROUPS, 1.0, LOG_NORMAL),
}


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--out", sets=(200, "of data"))
    torch.set_default_dtype(torch.double)
    torch.set_num_threads(1)
    by_model = {}
    for model in MODELS:
        by_model[model] = ranks = simulated(model, options.sets)
        for method in METHODS:
            listed = "  ".join(f"{n} {uniformity(r):.2g}" for n, r in ranks[method].items())
            print(f"{model:12s} {method:16s} p: {listed}", flush=True)
    if options.out:  # a folder
        draw(by_model, options.out / "simulation_based_calibration.png")
        path = options.out / "simulation_based_calibration.json"
        path.write_text(json.dumps(by_model) + "\n")


def covariates(name):
    """Those of the regression are neither centred nor uncorrelated."""
    generator, tensor = np.random.default_rng(0), partial(torch.tensor, dtype=torch.double)
    if name == "regression":
        shared = generator.normal(size=(60, 1))
        return (tensor(1.0 + shared + 0.5 * generator.normal(size=(60, 3))),)
    x = tensor(1.0 + generator.normal(size=200))
    return x, torch.arange(GROUPS).repeat_interleave(10)


def uniformity(ranks):
    counts = np.bincount(np.asarray(ranks) * BINS // (DRAWS + 1), minlength=BINS)
    return float(chisquare(counts).pvalue)


def simulated(name, sets):
    """Ranks of the coordinates of all sites by method, [data sets]."""
    ranks, model, x = {method: {} for method in METHODS}, MODELS[name], covariates(name)
    for seed in range(sets):
        host.fresh(seed)
        truth = Predictive(model, num_samples=1)(*x)
        data = *x, truth.pop("obs")[0]
        guide = harness.fitted(host, model, *data, seed=seed, method="newton", float64=True).guide
        draws = {"mean field": guide.sample_posterior(DRAWS)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            response = host.package.linear_response(model, guide, *data)
            draws["linear response"] = response.sample(DRAWS)
        for method in METHODS:
            note(ranks[method], truth, draws[method])
    return ranks


def note(ranks, truth, draws):
    for site, value in truth.items():
        values = draws[site].reshape(DRAWS, -1)
        below = (values < value.reshape(1, -1)).sum(0)
        for place, rank in enumerate(below[:3]):  # some of many groups, which are alike
            name = site if below.numel() == 1 else f"{site}[{place}]"
            ranks.setdefault(name, []).append(int(rank))


def draw(by_model, path):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    columns = max(len(ranks[METHODS[0]]) for ranks in by_model.values())
    rows = [(model, method) for model in by_model for method in METHODS]
    size = {"figsize": (1.9 * columns, 7.6), "sharey": True, "layout": "constrained"}
    figure, axes = plt.subplots(len(rows), columns, **size)
    for line, (model, method) in zip(axes, rows, strict=True):
        histograms(line, by_model[model][method])
        line[0].set_ylabel(f"{model}\n{method}")
    figure.savefig(path, dpi=110)


def histograms(line, by_name):
    for axes in line[len(by_name) :]:
        axes.axis("off")
    for axes, (name, values) in zip(line, by_name.items(), strict=False):
        expected = len(values) / BINS
        spread = 2 * np.sqrt(expected * (1 - 1 / BINS))
        axes.axhspan(expected - spread, expected + spread, color="0.88")
        colour = "#0072b2" if (p_value := uniformity(values)) > 0.01 else "#d55e00"
        axes.hist(values, bins=np.linspace(0, DRAWS + 1, BINS + 1), color=colour)
        axes.set_title(f"{name}\np = {p_value:.2g}", fontsize=9)
        axes.set_xticks([])


if __name__ == "__main__":
    main()
