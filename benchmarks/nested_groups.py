"""Hierarchies for nested inference, each with its data: functions of a host, as those of
`covariances_models`. Series and maps are in `nested_models`, which has all models.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from covariances_models import logistic, observed, random


@dataclass(frozen=True)
class Case:
    """A model of a host, its data, its hyperparameters, and elements of latent sites to compare."""

    make: Callable  # of a host
    data: tuple
    over: tuple[str, ...]  # sites
    elements: dict[str, tuple[int, ...]]  # places by site; none for a scalar

    def listed(self):
        """A name, a site and a place of each element; the place of a scalar is None."""
        for site, places in self.elements.items():
            for place in places or (None,):
                yield site if place is None else f"{site}[{place}]", site, place


# ---------------------------------------------------------------------------------------------
# Groups with an intercept of their own


def intercepts(kind, groups, seed=1):
    """A covariate and intercepts of groups: few binary rows or counts in each."""
    rows, spread = {"binary": (4, 1.0), "counts": (3, 0.7)}[kind]
    generator = random(seed)
    x = generator.normal(size=(groups, rows))
    predictor = -0.5 + 0.8 * x + spread * generator.normal(size=(groups, 1))
    if kind == "binary":
        y = (generator.random((groups, rows)) < logistic(predictor)).astype(float)
    else:
        y = generator.poisson(np.exp(predictor)).astype(float)

    def make(host):
        dist = host.dist

        def model(x, group, y):
            intercept = host.sample("intercept", dist.Normal(0.0, 5.0))
            slope = host.sample("slope", dist.Normal(0.0, 5.0))
            spread = host.sample("spread", dist.HalfNormal(1.0))
            with host.plate("groups", groups):
                effect = host.sample("effect", dist.Normal(0.0, spread))
            predictor = intercept + slope * x + effect[group]
            if kind == "binary":
                observed(host, dist.Bernoulli(logits=predictor), y)
            else:
                observed(host, dist.Poisson(host.np.exp(predictor)), y)

        return model

    group = np.repeat(np.arange(groups), rows)
    return Case(make, (x.ravel(), group, y.ravel()), ("spread",), OF_GROUPS)


def scattered_counts(groups=40, rows=5):
    """Intercepts of groups of negative binomial counts, whose concentration is unknown."""
    generator = random(31)
    x = generator.normal(size=(groups, rows))
    mean = np.exp(1.0 + 0.5 * x + 0.6 * generator.normal(size=(groups, 1)))
    y = generator.poisson(generator.gamma(3.0, mean / 3.0)).astype(float)

    def make(host):
        dist = host.dist

        def model(x, group, y):
            intercept = host.sample("intercept", dist.Normal(0.0, 5.0))
            slope = host.sample("slope", dist.Normal(0.0, 5.0))
            spread = host.sample("spread", dist.HalfNormal(1.0))
            concentration = host.sample("concentration", dist.LogNormal(1.0, 1.0))
            with host.plate("groups", groups):
                effect = host.sample("effect", dist.Normal(0.0, spread))
            logits = intercept + slope * x + effect[group] - host.np.log(concentration)
            observed(host, dist.NegativeBinomial(concentration, logits=logits), y)

        return model

    data = x.ravel(), np.repeat(np.arange(groups), rows), y.ravel()
    return Case(make, data, ("spread", "concentration"), OF_GROUPS)


def eight_schools(centred):
    effects = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    errors = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def make(host):
        dist = host.dist

        def model(errors, y):
            mean = host.sample("mean", dist.Normal(0.0, 5.0))
            spread = host.sample("spread", dist.HalfCauchy(5.0))
            with host.plate("schools", 8):
                if centred:
                    effect = host.sample("effect", dist.Normal(mean, spread))
                else:
                    effect = mean + spread * host.sample("z", dist.Normal(0.0, 1.0))
            observed(host, dist.Normal(effect, errors), y)

        return model

    elements = {"mean": (), "effect" if centred else "z": (0, 1, 2)}
    return Case(make, (errors, effects), ("spread",), elements)


# ---------------------------------------------------------------------------------------------
# Effects that cross


def rasch(persons=36, items=10):
    """Persons who answer items: the chance by ability and difficulty, both of unknown spread."""
    generator = random(4)
    ability, difficulty = 1.2 * generator.normal(size=persons), 0.8 * generator.normal(size=items)
    chance = logistic(0.3 + ability[:, None] - difficulty)
    answers = (generator.random((persons, items)) < chance).astype(float)
    person, item = (part.ravel() for part in np.indices((persons, items)))

    def make(host):
        dist = host.dist

        def model(person, item, y):
            mean = host.sample("mean", dist.Normal(0.0, 2.0))
            able = host.sample("able", dist.HalfNormal(1.0))
            hard = host.sample("hard", dist.HalfNormal(1.0))
            with host.plate("persons", persons):
                ability = host.sample("ability", dist.Normal(0.0, able))
            with host.plate("items", items):
                difficulty = host.sample("difficulty", dist.Normal(0.0, hard))
            logits = mean + ability[person] - difficulty[item]
            observed(host, dist.Bernoulli(logits=logits), y)

        return model

    elements = {"mean": (), "ability": (0, 1), "difficulty": (0,)}
    return Case(make, (person, item, answers.ravel()), ("able", "hard"), elements)


OF_GROUPS = {"intercept": (), "slope": (), "effect": (0, 1, 2)}
KINDS = {"binary": "binary intercepts", "counts": "Poisson intercepts"}
HIERARCHIES = {
    f"{title}, {groups} groups": partial(intercepts, kind, groups)
    for kind, title in KINDS.items()
    for groups in (20, 320, 1280)
} | {
    "negative binomial intercepts": scattered_counts,
    "eight schools, centred": partial(eight_schools, True),
    "eight schools, not centred": partial(eight_schools, False),
    "Rasch, 36 × 10": rasch,
}
