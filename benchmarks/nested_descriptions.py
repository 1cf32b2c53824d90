"""What `nested_references` knows of the models of `nested_models`: priors of hyperparameters on the
unconstrained scale, and each model given them, in NumPy alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import nested_chains
import nested_gaussians as gaussians
import numpy as np
from nested_quadrature import Groups
from scipy.special import expit, log_expit


@dataclass(frozen=True)
class Hyperparameter:
    """A prior on the unconstrained scale, with its Jacobian, and where to look."""

    scale: str  # in words
    value: Callable  # by the unconstrained number
    log_prior: Callable
    reach: tuple[float, float]


def half_normal(reach=(-9.0, 2.5)):
    constant = 0.5 * np.log(2 / np.pi)
    return Hyperparameter("log", np.exp, lambda u: constant - 0.5 * np.exp(2 * u) + u, reach)


def half_cauchy(scale):
    constant = np.log(2 / (np.pi * scale))
    log_prior = lambda u: constant - np.log1p((np.exp(u) / scale) ** 2) + u  # noqa: E731
    return Hyperparameter("log", np.exp, log_prior, (-9.0, 9.0))


def log_normal(mean, deviation):
    log_prior = lambda u: (  # noqa: E731
        -0.5 * ((u - mean) / deviation) ** 2 - np.log(deviation) - 0.5 * gaussians.UNIT
    )
    reach = mean - 7 * deviation, mean + 7 * deviation
    return Hyperparameter("log", np.exp, log_prior, reach)


def uniform(low, high, reach=(-9.0, 9.0)):
    words = f"logit of the share of the way from {low:g} to {high:g}"
    value = lambda u: low + (high - low) * expit(u)  # noqa: E731
    return Hyperparameter(words, value, lambda u: log_expit(u) + log_expit(-u), reach)


@dataclass(frozen=True)
class Description:
    """Hyperparameters; the model given them; the first place of each latent site in x."""

    over: dict[str, Hyperparameter]
    given: Callable
    places: dict[str, int]


# ---------------------------------------------------------------------------------------------
# Models


def intercepts(x, group, y):
    """By their likelihood, binary or counts, whichever the data are."""
    x, y = x.reshape(group.max() + 1, -1), y.reshape(group.max() + 1, -1)
    binary = y.max() == 1
    kind = gaussians.bernoulli if binary else gaussians.poisson
    return Description(
        {"spread": half_normal()},
        lambda spread: Groups(x, y, kind, spread),
        {"intercept": 0, "slope": 1, "effect": 2},
    )


def scattered_counts(x, group, y):
    x, y = x.reshape(group.max() + 1, -1), y.reshape(group.max() + 1, -1)

    def given(spread, concentration):
        kind = partial(gaussians.negative_binomial, concentration=concentration)
        return Groups(x, y, kind, spread)

    over = {"spread": half_normal(), "concentration": log_normal(1.0, 1.0)}
    return Description(over, given, {"intercept": 0, "slope": 1, "effect": 2})


def eight_schools(centred, errors, y):
    def given(spread):
        schools = np.eye(8)
        if not centred:
            predictor = np.column_stack([np.ones(8), spread * schools])
            deviations = np.r_[5.0, np.ones(8)]
            return gaussians.independent(predictor, deviations, gaussians.normal(y, errors))
        differences = np.column_stack([-np.ones(8), schools]) / spread
        precision = differences.T @ differences
        precision[0, 0] += 1 / 25
        constant = -np.log(5.0) - 8 * np.log(spread) - 4.5 * gaussians.UNIT
        predictor = np.column_stack([np.zeros(8), schools])
        return gaussians.Given(precision, constant, predictor, gaussians.normal(y, errors))

    places = {"mean": 0, "effect" if centred else "z": 1}
    return Description({"spread": half_cauchy(5.0)}, given, places)


def rasch(person, item, y):
    persons, items = person.max() + 1, item.max() + 1
    predictor = np.column_stack(
        [np.ones(len(y)), np.eye(persons)[person], -np.eye(items)[item]],
    )

    def given(able, hard):
        deviations = np.r_[2.0, np.full(persons, able), np.full(items, hard)]
        return gaussians.independent(predictor, deviations, gaussians.bernoulli(y))

    places = {"mean": 0, "ability": 1, "difficulty": 1 + persons}
    return Description({"able": half_normal(), "hard": half_normal()}, given, places)


def autoregressive_counts(inner, neighbours, y):
    steps = len(y)
    predictor = np.column_stack([np.ones(steps), np.eye(steps)])

    def given(step, kept):
        precision = np.zeros((steps + 1, steps + 1))
        precision[0, 0] = 1 / 4
        precision[1:, 1:] = (np.eye(steps) + kept**2 * inner - kept * neighbours) / step**2
        constant = -np.log(2.0) - steps * np.log(step) + 0.5 * np.log1p(-(kept**2))
        constant -= 0.5 * (steps + 1) * gaussians.UNIT
        likelihood = gaussians.poisson(y)
        exactly = partial(nested_chains.integrated, likelihood, step, kept, 2.0)
        return gaussians.Given(precision, constant, predictor, likelihood, exactly)

    over = {"step": half_normal((-5.0, 2.5)), "kept": uniform(-1.0, 1.0)}
    return Description(over, given, {"mean": 0, "path": 1})


def walk_of_levels(y):
    sums = np.tri(len(y))

    def given(step, noise):
        predictor = np.column_stack([np.ones(len(y)), step * sums])
        deviations = np.r_[2.0, np.ones(len(y))]
        return gaussians.independent(predictor, deviations, gaussians.normal(y, noise))

    return Description({"step": half_normal(), "noise": half_normal()}, given, {"first": 0, "z": 1})


def walk_of_counts(y):
    predictor = np.column_stack([np.ones(len(y)), np.tri(len(y))])

    def given(step):
        deviations = np.r_[2.0, np.full(len(y), step)]
        return gaussians.independent(predictor, deviations, gaussians.poisson(y))

    return Description({"step": half_normal()}, given, {"first": 0, "moves": 1})


def hilbert_space_counts(basis, squares, y):
    def given(height, length):
        decay = np.exp(-0.25 * squares * length**2)
        weights = height * (2 * np.pi) ** 0.25 * length**0.5 * decay
        predictor = np.column_stack([np.ones(len(y)), basis * weights])
        deviations = np.r_[2.0, np.ones(basis.shape[1])]
        return gaussians.independent(predictor, deviations, gaussians.poisson(y))

    over = {"height": half_normal(), "length": log_normal(-1.0, 0.5)}
    return Description(over, given, {"mean": 0, "z": 1})


def disease_map(first, second, expected, y):
    """The factor of differences has no constant, the soft sum has that of its Normal density."""
    size = len(y)
    differences = np.eye(size)[first] - np.eye(size)[second]
    laplacian = differences.T @ differences
    covariance = np.linalg.pinv(laplacian, hermitian=True)
    unit = np.exp(np.log(np.diag(covariance)).mean()) ** -0.5
    precision = np.diag(np.r_[1 / 4, np.ones(size), np.zeros(size)])
    precision[1 + size :, 1 + size :] = laplacian + 1 / (0.001 * size) ** 2
    constant = -np.log(2.0) - 0.5 * (size + 2) * gaussians.UNIT - np.log(0.001 * size)

    def given(spread, share):
        own, near = np.sqrt(1 - share) * np.eye(size), np.sqrt(share) * unit * np.eye(size)
        predictor = np.column_stack([np.ones(size), spread * own, spread * near])
        return gaussians.Given(precision, constant, predictor, gaussians.poisson(y, expected))

    over = {"spread": half_normal(), "share": uniform(0.0, 1.0)}
    return Description(over, given, {"mean": 0, "own": 1, "near": 1 + size})


NAMES = {
    "binary": intercepts,
    "Poisson": intercepts,
    "negative": scattered_counts,
    "eight schools, centred": partial(eight_schools, True),
    "eight schools, not": partial(eight_schools, False),
    "Rasch": rasch,
    "AR(1)": autoregressive_counts,
    "walk of levels": walk_of_levels,
    "walk of counts": walk_of_counts,
    "HSGP": hilbert_space_counts,
    "BYM2": disease_map,
}


def described(name, case):
    """What is known of a model."""
    (make,) = (make for start, make in NAMES.items() if name.startswith(start))
    return make(*case.data)
