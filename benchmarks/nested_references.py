"""Marginals and evidence of the models of `nested_models`, by NumPy alone.

    OMP_NUM_THREADS=1 python benchmarks/nested_references.py \
        --out docs/experiments/nested_references.json

On a fine grid of hyperparameters, on the unconstrained scale that the frameworks have: groups with
two coefficients by cubature and quadrature, others by importance sampling from the Gaussian with
the largest ELBO, with pairs of draws that all points share, so that their error is nearly the same
at all points; where observations are Normal, weights do not differ and the reference is exact.
Densities of latent elements are mixtures over the grid of Gaussians times Hermite polynomials,
whose coefficients are expectations. All constants of priors and likelihoods are in the evidence.
"""

import itertools
import json

import harness
import nested_gaussians as gaussians
import nested_quadrature as quadrature
import numpy as np
from covariances import written
from nested_descriptions import described
from nested_models import MODELS
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp

COARSE, ROUNDS, FINE = 11, 3, {1: 61, 2: 25}  # points in a direction, by the number of them
FAR = 14.0  # nats below the best point, where the grid ends
NEAR = {1: 14.0, 2: 9.0}  # nats below it, beyond which the ELBO is enough
COMMON = 4000, 16_000  # pairs of draws of all points
OWN = {1: 4000, 2: 500}  # of each point, for latent elements
TABLE = 61  # points of the densities of latent elements
STEPS = 201  # points of the densities of hyperparameters, of which every second is listed
FEWEST = 2000  # effective draws of a point; where there are less, the larger number is used
LEAST = 50.0  # nats below it, where no Gaussian was found
SAME = 1e-6  # spread of weights where the Gaussian is the posterior, and two pairs are enough
EDGE = 6.0  # of the tables, in standard deviations


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--only --out")
    for name in MODELS:
        if options.only in name:
            found, seconds = harness.clocked(lambda name=name: reference(name))
            found["seconds"] = round(seconds, 1)
            parts = {key: part for key, part in found.items() if "elem" not in key}
            parts.pop("hyperparameters")
            print(name, json.dumps(parts, ensure_ascii=False), flush=True)
            report(options.out, name, found)


def report(path, name, found):
    """Add a reference to the file."""
    if path:
        known = json.loads(path.read_text()) if path.exists() else {}
        known[name] = found
        path.write_text(written({name: known[name] for name in MODELS if name in known}))


def reference(name):
    case = MODELS[name]()
    known = described(name, case)
    places = [known.places[site] + (place or 0) for _, site, place in case.listed()]
    axes, best = narrowed(known)
    for pairs in COMMON:
        parts = points(known, axes, best, places, pairs)
        logs = parts["logs"].reshape(-1, *map(len, axes))
        weights = np.exp(logs[0] - logsumexp(logs[0])).ravel()
        least = int(parts["effective"][weights > 1e-3 * weights.max()].min())
        if parts["method"] != "importance sampling" or least >= FEWEST:
            break
    spacing = [np.log(axis[1] - axis[0]) for axis in axes]
    evidence = [float(logsumexp(part) + sum(spacing)) for part in logs]
    elements = of_elements(parts, weights, [title for title, *_ in case.listed()])
    return {
        **quality(parts, pairs, least, logs, evidence, case.over),
        "log evidence": round(evidence[0], 5),
        "grid": [len(axis) for axis in axes],
        "share of weight at the edge": float(f"{at_the_edge(weights.reshape(logs[0].shape)):.2g}"),
        "hyperparameters": of_hyperparameters(known, axes, logs[0]),
        "elements": elements,
    }


def quality(parts, pairs, least, logs, evidence, names):
    """By what method, and of draws what their halves find, whose mean differs half as much."""
    if parts["method"] != "importance sampling":
        return {"method": parts["method"]}
    return {
        "method": parts["method"],
        "draws": 2 * pairs,
        "effective draws": least,
        "log evidence of halves": [round(part, 5) for part in evidence[1:]],
        "total variation between halves": between(logs, names),
    }


# ---------------------------------------------------------------------------------------------
# The grid


def narrowed(known):
    """Axes of the fine grid, which has all that is not far below the best; and the best value."""
    bounds = [part.reach for part in known.over.values()]
    for _ in range(ROUNDS):
        axes = [np.linspace(*bound, COARSE) for bound in bounds]
        values = np.array([at(known, point)[0] for point in itertools.product(*axes)])
        values = values.reshape([COARSE] * len(axes))
        near = values > values.max() - FAR
        for place, axis in enumerate(axes):
            kept = axis[near.any(axis=tuple(part for part in range(near.ndim) if part != place))]
            step, (low, high) = axis[1] - axis[0], bounds[place]
            bounds[place] = (max(low, kept[0] - step), min(high, kept[-1] + step))
    return [np.linspace(*bound, FINE[len(bounds)]) for bound in bounds], values.max()


def at(known, point, start=None):
    """ELBO and prior at a point, with the Gaussian and the model."""
    parts = list(known.over.values())
    given = known.given(*[part.value(u) for part, u in zip(parts, point, strict=True)])
    prior = sum(part.log_prior(u) for part, u in zip(parts, point, strict=True))
    module = quadrature if isinstance(given, quadrature.Groups) else gaussians
    try:
        found = module.fitted(given, start)
    except (RuntimeError, np.linalg.LinAlgError):
        if start is None:
            return -np.inf, None, given, prior
        return at(known, point)
    return found.elbo + prior, found, given, prior


def points(known, axes, best, places, pairs):
    """Log densities by all draws and by halves, and what makes densities of elements."""
    random = np.random.default_rng(60)
    common, found, rows, method = None, None, [], "importance sampling"
    for point in itertools.product(*axes):
        value, found, given, prior = at(known, point, found)
        if found is None:
            rows.append((np.full(3, best - LEAST), 0, None, None, None))
            continue
        centre = found.mean[places], found.deviations[places]
        if value < best - NEAR[len(axes)]:
            rows.append((np.full(3, value), 0, *centre, None))
            continue
        if given.integrated is not None:
            method = "quadrature"
            total, shape = given.integrated(found, places)
            rows.append((np.full(3, total + prior), 0, *centre, shape))
            continue
        if common is None:
            common = random.normal(size=(pairs, len(found.mean)))
        weights, _ = gaussians.log_weights(given, found, common)
        logs, effective = gaussians.evidences(weights)
        if np.ptp(weights) < SAME:
            common, own, method = common[:2], common[:2], "exact"
        else:
            own = random.normal(size=(OWN[len(axes)], len(found.mean)))
        shape = of_draws(given, found, own, places)
        rows.append((logs + prior, round(effective), *centre, shape))
    return gathered(rows, method)


def of_draws(given, found, draws, places):
    """Coefficients of the densities of elements."""
    weights, moves = gaussians.log_weights(given, found, draws)
    relative = np.exp(weights - logsumexp(weights) + np.log(weights.size))
    standardised = moves[:, places] / found.deviations[places]
    both = np.stack([standardised, -standardised])
    return np.array([gaussians.coefficients(relative, part) for part in np.moveaxis(both, -1, 0)])


def gathered(rows, method):
    """Arrays with an axis of points; those far below the best have their Gaussians."""
    means, deviations, shapes = next(row[2:] for row in rows if row[4] is not None)
    plain = np.zeros_like(shapes)
    plain[:, 0] = 1.0
    others = None, None, means, deviations, plain  # where there is no Gaussian, nothing weighs
    names = "logs", "effective", "means", "deviations", "shapes"
    columns = [
        np.stack([other if part is None else part for part in column])
        for column, other in zip(zip(*rows, strict=True), others, strict=True)
    ]
    arrays = dict(zip(names, columns, strict=True))
    return arrays | {"logs": arrays["logs"].T, "method": method}


# ---------------------------------------------------------------------------------------------
# What is reported


def marginal(logs, place):
    """Log density of one hyperparameter at the points of its axis, up to a constant."""
    others = tuple(part for part in range(logs.ndim) if part != place)
    return logsumexp(logs, axis=others)


def between(logs, names):
    """Total variation between marginals by halves of the draws."""
    found = {}
    for place, name in enumerate(names):
        one, other = (np.exp(marginal(part - logsumexp(part), place)) for part in logs[1:])
        found[name] = float(f"{0.5 * np.abs(one - other).sum():.2g}")
    return found


def at_the_edge(weights):
    inner = weights[tuple(slice(1, -1) for _ in weights.shape)]
    return 1 - inner.sum()


def of_hyperparameters(known, axes, logs):
    found = {}
    for place, (name, part) in enumerate(known.over.items()):
        curve = CubicSpline(axes[place], marginal(logs, place) - logs.max())
        fine = np.linspace(axes[place][0], axes[place][-1], STEPS)
        density = np.exp(curve(fine))
        density /= density.sum() * (fine[1] - fine[0])
        below = CubicSpline(fine, density).antiderivative()(fine)
        found[name] = {
            "scale": part.scale,
            "points": listed(fine[::2]),
            "density": listed(density[::2]),
            "cdf": shares(below[::2]),
        }
    return found


def of_elements(parts, weights, titles):
    """Moments, densities and distribution functions of latent elements."""
    kept = np.flatnonzero(weights > 1e-9)
    found, weights = {}, weights[kept] / weights[kept].sum()
    for place, title in enumerate(titles):
        columns = [parts[name][kept, place] for name in ("means", "deviations", "shapes")]
        rows = list(zip(*columns, strict=True))
        one, two, three = weights @ [gaussians.raw_moments(*row) for row in rows]
        deviation = np.sqrt(two - one**2)
        skewness = (three - 3 * one * two + 2 * one**3) / deviation**3
        table = one + deviation * np.linspace(-EDGE, EDGE, TABLE)
        curves = [gaussians.distributed(table, *row) for row in rows]
        density, below = np.tensordot(weights, np.array(curves), 1)
        found[title] = {
            "mean": listed([one])[0],
            "deviation": listed([deviation])[0],
            "skewness": round(float(skewness), 4),
            "points": listed(table),
            "density": listed(np.maximum(density, 0)),
            "cdf": shares(below),
        }
    return found


def shares(values):
    return [round(float(part), 7) for part in np.clip(values, 0, 1)]


def listed(values):
    return [float(f"{value:.6g}") for value in values]


if __name__ == "__main__":
    main()
