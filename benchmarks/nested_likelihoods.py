"""Small latent Gaussian models of different likelihoods whose parameters are draws of their priors,
for `nested_calibration`: each simulated in NumPy, and written once for both frameworks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from covariances_models import logistic, observed

GROUPS, ROWS, STEPS = 10, 4, 30
PERSONS, ITEMS, TRIALS = 12, 6, 8
GROUP = np.repeat(np.arange(GROUPS), ROWS)
PERSON, ITEM = (part.ravel() for part in np.indices((PERSONS, ITEMS)))
LEVEL = 1.0  # standard deviation of all levels


@dataclass(frozen=True)
class Simulation:
    """Parameters and observations of a seed, and the model of a host."""

    draw: Callable  # of a generator: scalars by site, and observations
    make: Callable  # of a host: a model of the observations


def draw_groups(generator, spread):
    """A level, and predictors of groups about it."""
    level = LEVEL * generator.normal()
    return level, (level + spread * generator.normal(size=GROUPS))[GROUP]


def groups_of(host, spread):
    """The predictor of groups, by their own effects."""
    level = host.sample("level", host.dist.Normal(0.0, LEVEL))
    with host.plate("groups", GROUPS):
        effect = host.sample("effect", host.dist.Normal(0.0, spread))
    return level + effect[GROUP]


def draw_walk(generator, step):
    """A level, and a random walk from it."""
    level = LEVEL * generator.normal()
    return level, level + np.cumsum(step * generator.normal(size=STEPS))


def walk_of(host, step):
    """A random walk, by its steps."""
    level = host.sample("level", host.dist.Normal(0.0, LEVEL))
    prior = host.dist.Normal(0.0, step).expand([STEPS]).to_event(1)
    return level + host.np.cumsum(host.sample("moves", prior), -1)


# ---------------------------------------------------------------------------------------------
# One model by likelihood


def draw_poisson(generator):
    step = 0.5 * abs(generator.normal())
    level, eta = draw_walk(generator, step)
    return {"step": step, "level": level}, generator.poisson(np.exp(eta))


def poisson(host):
    def model(y):
        step = host.sample("step", host.dist.HalfNormal(0.5))
        observed(host, host.dist.Poisson(host.np.exp(walk_of(host, step))), y)

    return model


def draw_bernoulli(generator):
    able, hard = abs(generator.normal(size=2))
    level = LEVEL * generator.normal()
    ability = able * generator.normal(size=PERSONS)
    eta = level + ability[PERSON] - (hard * generator.normal(size=ITEMS))[ITEM]
    answers = generator.random(len(eta)) < logistic(eta)
    return {"able": able, "hard": hard, "level": level}, answers


def bernoulli(host):
    def model(y):
        dist = host.dist
        able = host.sample("able", dist.HalfNormal(1.0))
        hard = host.sample("hard", dist.HalfNormal(1.0))
        level = host.sample("level", dist.Normal(0.0, LEVEL))
        with host.plate("persons", PERSONS):
            ability = host.sample("ability", dist.Normal(0.0, able))
        with host.plate("items", ITEMS):
            difficulty = host.sample("difficulty", dist.Normal(0.0, hard))
        observed(host, dist.Bernoulli(logits=level + ability[PERSON] - difficulty[ITEM]), y)

    return model


def draw_binomial(generator):
    spread = generator.exponential(1.0)
    level, eta = draw_groups(generator, spread)
    return {"spread": spread, "level": level}, generator.binomial(TRIALS, logistic(eta))


def binomial(host):
    def model(y):
        spread = host.sample("spread", host.dist.Exponential(1.0))
        observed(host, host.dist.Binomial(TRIALS, logits=groups_of(host, spread)), y)

    return model


def draw_negative_binomial(generator):
    spread, concentration = abs(generator.normal()), np.exp(1.0 + generator.normal())
    level, eta = draw_groups(generator, spread)
    rates = generator.gamma(concentration, np.exp(eta) / concentration)
    scalars = {"spread": spread, "concentration": concentration, "level": level}
    return scalars, generator.poisson(rates)


def negative_binomial(host):
    def model(y):
        spread = host.sample("spread", host.dist.HalfNormal(1.0))
        concentration = host.sample("concentration", host.dist.LogNormal(1.0, 1.0))
        logits = groups_of(host, spread) - host.np.log(concentration)
        observed(host, host.dist.NegativeBinomial(concentration, logits=logits), y)

    return model


def draw_gamma(generator):
    spread, shape = generator.gamma(2.0, 0.5), np.exp(1.0 + 0.7 * generator.normal())
    level, eta = draw_groups(generator, spread)
    times = generator.gamma(shape, np.exp(eta) / shape)
    return {"spread": spread, "shape": shape, "level": level}, times


def gamma(host):
    def model(y):
        spread = host.sample("spread", host.dist.Gamma(2.0, 2.0))
        shape = host.sample("shape", host.dist.LogNormal(1.0, 0.7))
        rate = shape * host.np.exp(-groups_of(host, spread))
        observed(host, host.dist.Gamma(shape, rate), y)

    return model


def draw_normal(generator):
    step, noise = generator.gamma(2.0, 0.25), abs(generator.normal())
    level, path = draw_walk(generator, step)
    return {"step": step, "noise": noise, "level": level}, generator.normal(path, noise)


def normal(host):
    def model(y):
        step = host.sample("step", host.dist.Gamma(2.0, 4.0))
        noise = host.sample("noise", host.dist.HalfNormal(1.0))
        observed(host, host.dist.Normal(walk_of(host, step), noise), y)

    return model


LIKELIHOODS = {
    "Poisson, walk": Simulation(draw_poisson, poisson),
    "Bernoulli, crossed effects": Simulation(draw_bernoulli, bernoulli),
    "binomial, groups": Simulation(draw_binomial, binomial),
    "negative binomial, groups": Simulation(draw_negative_binomial, negative_binomial),
    "Gamma, groups": Simulation(draw_gamma, gamma),
    "Normal, walk and noise": Simulation(draw_normal, normal),
}
