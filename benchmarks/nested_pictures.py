"""Curves of the picture of docs/nested_inference.md: nested inference beside references and NUTS.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/nested_pictures.py \
        --out docs/experiments/pictures/nested.json
"""

import json

import harness
import numpy as np
from covariances import written
from nested import REFERENCES
from nested_models import MODELS

LEVELS = 0.05, 0.5, 0.95
DRAWS, WARM_UP = 4000, 1000


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--out")
    host = harness.load("numpyro")
    found = {}
    with host.doubles():
        for curves in (spread_of_schools, spread_of_counts, rate_of_counts):
            found[curves.__name__.replace("_", " ")] = curves(host)
    if options.out:
        options.out.write_text(written(found))


def fitted(host, name):
    """A model with its data, and its posterior."""
    case = MODELS[name]()
    model, data = case.make(host), tuple(map(host.array, case.data))
    return model, data, host.package.nested(model, *data)


def reference(name, kind, site):
    return json.loads(REFERENCES.read_text())[name][kind][site]


def spread_of_schools(host):
    """The spread of eight schools: exact, nested, mean field, and NUTS by its histogram."""
    name = "eight schools, centred"
    model, data, posterior = fitted(host, name)
    exact = reference(name, "hyperparameters", "spread")
    points = np.linspace(0.02, 25.0, 200)
    density = np.interp(np.log(points), exact["points"], exact["density"]) / points
    fit = host.package.fit(model, host.package.DVIGuide(), *data)
    loc, scale = host.located(fit.params)["spread"]
    mean_field = np.exp(-0.5 * ((np.log(points) - loc) / scale) ** 2) / (points * scale)
    draws = host.one_chain(model, data, WARM_UP, DRAWS)["spread"]
    heights, edges = np.histogram(draws, np.linspace(0.0, 25.0, 26))
    return {
        "points": rounded(points),
        "exact": rounded(density),
        "nested": rounded(posterior.marginal("spread").pdf(points)),
        "mean field": rounded(mean_field / np.sqrt(2 * np.pi)),
        "edges": rounded(edges),
        "NUTS": rounded(heights / len(draws)),
    }


def spread_of_counts(host):
    """The spread of 320 groups of counts: reference, nested, and its ELBO without correction."""
    name = "Poisson intercepts, 320 groups"
    _, _, posterior = fitted(host, name)
    known = reference(name, "hyperparameters", "spread")
    logs = np.linspace(-0.6, 0.05, 150)
    points = np.exp(logs)
    elbo = posterior._inference.uncorrected.marginal(0)
    return {
        "points": rounded(points),
        "reference": rounded(np.interp(logs, known["points"], known["density"]) / points),
        "nested": rounded(posterior.marginal("spread").pdf(points)),
        "ELBO alone": rounded(np.exp(np.interp(logs, *elbo)) / points),
    }


def rate_of_counts(host):
    """The rate of counts by a Hilbert-space Gaussian process: quantiles of nested and NUTS."""
    model, data, posterior = fitted(host, "HSGP counts")
    basis, squares, y = map(np.asarray, data)
    ours = posterior.plain_draws(np.random.default_rng(0), DRAWS)
    theirs = {
        site: np.asarray(draws)
        for site, draws in host.one_chain(model, data, WARM_UP, DRAWS).items()
    }
    return {
        "x": rounded(np.linspace(-1, 1, len(y))),
        "counts": [int(count) for count in y],
        "nested": [rounded(line) for line in quantiles(ours, basis, squares)],
        "NUTS": [rounded(line) for line in quantiles(theirs, basis, squares)],
    }


def quantiles(draws, basis, squares):
    """Quantiles of the rate by draws of the model's latent sites."""
    height, length = draws["height"][:, None], draws["length"][:, None]
    decay = np.exp(-0.25 * squares * length**2)
    weights = height * (2 * np.pi) ** 0.25 * length**0.5 * decay * draws["z"]
    rates = np.exp(draws["mean"][:, None] + weights @ basis.T)
    return np.quantile(rates, LEVELS, axis=0)


def rounded(values):
    return [float(f"{value:.5g}") for value in np.asarray(values)]


if __name__ == "__main__":
    main()
