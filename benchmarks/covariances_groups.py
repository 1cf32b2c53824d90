"""Hierarchies and regressions of `covariances`, as the series of `covariances_models`."""

from functools import partial

import numpy as np
from covariances_models import Case, logistic, observed, random
from models import standard


def hierarchy(kind, centred=False, rows=200, groups=8, seed=11):
    """Groups and a covariate, with a Normal, Bernoulli or Poisson likelihood."""
    generator = random(seed)
    x, group = generator.normal(size=rows), np.arange(rows) % groups
    predictor = 0.5 + 0.8 * generator.normal(size=groups)[group] + 0.7 * x
    y = {
        "Normal": lambda: predictor + 0.5 * generator.normal(size=rows),
        "Bernoulli": lambda: (generator.random(rows) < logistic(predictor)).astype(float),
        "Poisson": lambda: generator.poisson(np.exp(predictor)).astype(float),
    }[kind]()

    def make(host):
        dist = host.dist

        def model(x, group, y):
            mean = host.sample("mean", dist.Normal(0.0, 5.0))
            slope = host.sample("slope", dist.Normal(0.0, 5.0))
            spread = host.sample("spread", dist.HalfNormal(2.0))
            with host.plate("groups", groups):
                prior = dist.Normal(mean, spread) if centred else dist.Normal(0.0, 1.0)
                effect = host.sample("effect", prior)
            effect = effect if centred else mean + spread * effect
            predictor = effect[group] + slope * x
            fn = {
                "Normal": lambda: dist.Normal(
                    predictor, host.sample("noise", dist.HalfNormal(2.0))
                ),
                "Bernoulli": lambda: dist.Bernoulli(logits=predictor),
                "Poisson": lambda: dist.Poisson(host.np.exp(predictor)),
            }[kind]()
            observed(host, fn, y)

        return model

    return Case(make, (x, group, y), ("effect",) if centred else ())


def eight_schools():
    effects = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    errors = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def make(host):
        def model(errors, y):
            mean = host.sample("mean", host.dist.Normal(0.0, 5.0))
            spread = host.sample("spread", host.dist.HalfCauchy(5.0))
            with host.plate("schools", 8):
                z = host.sample("z", host.dist.Normal(0.0, 1.0))
            observed(host, host.dist.Normal(mean + spread * z, errors), y)

        return model

    return Case(make, (errors, effects))


def varying_slopes(rows=240, groups=20):
    """Intercepts and slopes of groups, whose correlation has an LKJ prior."""
    generator = random(12)
    x, group = generator.normal(size=rows), np.arange(rows) % groups
    covariance = [[0.6, 0.3], [0.3, 0.4]]
    effects = generator.multivariate_normal([0.5, 1.0], covariance, size=groups)
    y = effects[group, 0] + effects[group, 1] * x + 0.5 * generator.normal(size=rows)

    def make(host):
        dist = host.dist

        def model(x, group, y):
            mean = host.sample("mean", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
            spread = host.sample("spread", dist.HalfNormal(1.0).expand([2]).to_event(1))
            factor = host.sample("factor", dist.LKJCholesky(2, 2.0))
            noise = host.sample("noise", dist.HalfNormal(1.0))
            with host.plate("groups", groups):
                fn = dist.MultivariateNormal(mean, scale_tril=spread[..., None] * factor)
                effect = host.sample("effect", fn)
            predictor = effect[group, 0] + effect[group, 1] * x
            observed(host, dist.Normal(predictor, noise), y)

        return model

    return Case(make, (x, group, y))


def horseshoe(rows=100, columns=10):
    """A regression on ten columns, two of which count."""
    generator = random(13)
    x = generator.normal(size=[rows, columns])
    y = 2 * x[:, 0] - x[:, 1] + generator.normal(size=rows)

    def make(host):
        dist = host.dist

        def model(x, y):
            overall = host.sample("overall", dist.HalfNormal(1.0))
            halves = dist.HalfCauchy(1.0).expand([columns]).to_event(1)
            local = host.sample("local", halves)
            z = host.sample("z", standard(host)([columns]))
            noise = host.sample("noise", dist.HalfNormal(1.0))
            observed(host, dist.Normal(x @ (overall * local * z), noise), y)

        return model

    return Case(make, (x, y), accepted=0.98)


def item_response(persons=40, items=8):
    """2PL: the chance of an answer by ability, difficulty and discrimination."""
    generator = random(14)
    ability, difficulty = generator.normal(size=persons), generator.normal(size=items)
    discrimination = np.exp(0.3 * generator.normal(size=items))
    chance = logistic(discrimination * (ability[:, None] - difficulty))
    answers = (generator.random([persons, items]) < chance).astype(float)
    person, item = (part.ravel() for part in np.indices([persons, items]))

    def make(host):
        dist = host.dist

        def model(person, item, y):
            with host.plate("persons", persons):
                ability = host.sample("ability", dist.Normal(0.0, 1.0))
            with host.plate("items", items):
                difficulty = host.sample("difficulty", dist.Normal(0.0, 1.5))
                discrimination = host.sample("discrimination", dist.LogNormal(0.0, 0.5))
            distance = ability[person] - difficulty[item]
            observed(host, dist.Bernoulli(logits=discrimination[item] * distance), y)

        return model

    return Case(make, (person, item, answers.ravel()))


def wide_scales(groups, rows=30):
    """Few groups under a wide uniform scale, which a Gaussian cannot hold."""
    generator = random(20 + groups)
    group = np.arange(rows) % groups
    y = generator.normal(size=groups)[group] + 0.5 * generator.normal(size=rows)

    def make(host):
        dist = host.dist

        def model(group, y):
            mean = host.sample("mean", dist.Normal(0.0, 10.0))
            spread = host.sample("spread", dist.Uniform(0.0, 10.0))
            noise = host.sample("noise", dist.Uniform(0.0, 10.0))
            with host.plate("groups", groups):
                z = host.sample("z", dist.Normal(0.0, 1.0))
            observed(host, dist.Normal(mean + spread * z[group], noise), y)

        return model

    return Case(make, (group, y), is_counted=False)


GROUPS = {
    "hierarchy, not centred": partial(hierarchy, "Normal"),
    "hierarchy, centred": partial(hierarchy, "Normal", centred=True),
    "logistic hierarchy": partial(hierarchy, "Bernoulli", rows=300, groups=15, seed=15),
    "Poisson hierarchy": partial(hierarchy, "Poisson", groups=12, seed=16),
    "eight schools": eight_schools,
    "varying slopes, LKJ": varying_slopes,
    "horseshoe regression": horseshoe,
    "2PL item response": item_response,
    "wide scale of 3 groups": partial(wide_scales, 3),
    "wide scale of 4 groups": partial(wide_scales, 4),
}
