"""Data of the shape of those that statistics textbooks use, simulated from the models themselves.

Indices are of 64 bits, counts and labels of 0 and 1 of 32 bits: Pyro takes the latter as floats.
"""

from __future__ import annotations

import numpy as np

ISLANDS = 10


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _reals(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(array, np.float32) for array in arrays)


def _counts(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, np.int32)


def heights(rng: np.random.Generator) -> tuple:
    """Weight, less its mean, and height of 150 adults."""
    weight = rng.normal(0, 6.5, 150)
    return _reals(weight, 154.6 + 0.9 * weight + rng.normal(0, 5, 150))


def milk(rng: np.random.Generator) -> tuple:
    """Clade and standardised energy of the milk of 60 species."""
    clade = rng.integers(0, 4, 60)
    energy = np.array([-0.5, 0.4, 0.7, -0.6])[clade] + rng.normal(0, 0.8, 60)
    return clade, *_reals(energy)


def divorce(rng: np.random.Generator) -> tuple:
    """Age at marriage, rate of marriage and rate of divorce of 50 states, two of them far off."""
    age = rng.normal(size=50)
    rate = -0.7 * age + 0.7 * rng.normal(size=50)
    divorces = -0.6 * age + 0.7 * rng.normal(size=50)
    divorces[[3, 17]] += [3.0, -3.5]
    return _reals(age, rate, divorces)


def chimpanzees(rng: np.random.Generator) -> tuple:
    """Actor, block, treatment and the lever of 168 pulls."""
    actor, block = np.repeat(np.arange(7), 24), np.tile(np.repeat(np.arange(6), 4), 7)
    treatment = np.tile(np.arange(4), 42)
    level = np.array([-0.4, 2.5, -0.7, -0.7, -0.4, 0.6, 1.6])[actor]
    logits = level + np.array([-0.1, 0.4, -0.4, 0.3])[treatment]
    return actor, block, treatment, _counts(rng.random(168) < _sigmoid(logits))


def pulls(rng: np.random.Generator) -> tuple:
    """The same without the blocks."""
    actor, _, treatment, lever = chimpanzees(rng)
    return actor, treatment, lever


def tools(rng: np.random.Generator) -> tuple:
    """Contact, standardised log population and number of tools of 40 societies."""
    contact, population = rng.integers(0, 2, 40), rng.normal(size=40)
    tool_count = rng.poisson(np.exp(3 + 0.3 * population + 0.3 * contact))
    return contact, *_reals(population), _counts(tool_count)


def inventions(rng: np.random.Generator) -> tuple:
    """Contact, population in thousands and number of tools of 40 societies."""
    contact, population = rng.integers(0, 2, 40), np.exp(rng.normal(2, 1, 40))
    return contact, *_reals(population), _counts(rng.poisson(15 * population**0.3))


def careers(rng: np.random.Generator) -> tuple:
    """Income of three careers and the choices of 200 people."""
    income = np.array([1.0, 2.0, 5.0])
    logits = np.array([0.6, 0.4, 0.0]) + 0.4 * income
    chances = np.exp(logits) / np.exp(logits).sum()
    return *_reals(income), rng.choice(3, 200, p=chances)


def admissions(rng: np.random.Generator) -> tuple:
    """Gender, applications and admissions of 40 pairs of department and gender."""
    gender, applications = np.tile([0, 1], 20), rng.integers(20, 200, 40)
    chances = rng.beta(2.0, 3.0, 40)
    return gender, _counts(applications), _counts(rng.binomial(applications, chances))


def dispersed_tools(rng: np.random.Generator) -> tuple:
    """Standardised log population and number of tools of 80 societies, overdispersed."""
    population = rng.normal(size=80)
    mean = np.exp(2.5 + 0.4 * population)
    return *_reals(population), _counts(rng.poisson(rng.gamma(3.0, mean / 3.0)))


def monastery(rng: np.random.Generator) -> tuple:
    """Manuscripts of 200 days, a fifth of which are drunk."""
    return (_counts(rng.poisson(1.0, 200) * (rng.random(200) > 0.2)),)


def trolley(rng: np.random.Generator) -> tuple:
    """Action, intention, contact and one of seven answers of 200 questions."""
    story = rng.integers(0, 2, (200, 3)).astype(float)
    latent = story @ [-0.7, -0.7, -0.9] + rng.logistic(size=200)
    answer = np.digitize(latent, [-2.8, -2.1, -1.5, -0.5, 0.2, 1.1])
    return *_reals(*story.T), answer


def education(rng: np.random.Generator) -> tuple:
    """Action, level of education (0 to 4) and one of five answers of 200 questions."""
    action, level = rng.integers(0, 2, 200), rng.integers(0, 5, 200)
    effect = np.array([0.0, 0.3, 0.5, 0.8, 1.0])[level]
    latent = -0.7 * action + 1.2 * effect + rng.logistic(size=200)
    return *_reals(action), level, np.digitize(latent, [-1.5, -0.3, 0.6, 1.8])


def tadpoles(rng: np.random.Generator) -> tuple:
    """Tadpoles and survivors of 48 tanks."""
    density = np.repeat([10, 25, 35], 16)
    return _counts(density), _counts(rng.binomial(density, _sigmoid(rng.normal(1.3, 1.6, 48))))


def cafes(rng: np.random.Generator) -> tuple:
    """Café, afternoon and waiting time of 200 visits to 20 cafés."""
    cafe, afternoon = np.repeat(np.arange(20), 10), np.tile([0.0, 1.0], 100)
    effects = rng.multivariate_normal([3.5, -1.0], [[1.0, -0.35], [-0.35, 0.25]], 20)
    waiting = effects[cafe, 0] + effects[cafe, 1] * afternoon + rng.normal(0, 0.5, 200)
    return cafe, *_reals(afternoon, waiting)


def gifts(rng: np.random.Generator) -> tuple:
    """Two households of 60 pairs of 12, and the gifts in both directions."""
    first, second = (places[:60] for places in np.triu_indices(12, 1))
    household = rng.multivariate_normal([0, 0], [[0.5, -0.2], [-0.2, 0.2]], 12)
    pair = rng.multivariate_normal([0, 0], [[0.8, 0.6], [0.6, 0.8]], 60)
    forth = np.exp(0.7 + household[first, 0] + household[second, 1] + pair[:, 0])
    back = np.exp(0.7 + household[second, 0] + household[first, 1] + pair[:, 1])
    return first, second, _counts(rng.poisson(forth)), _counts(rng.poisson(back))


def wages(rng: np.random.Generator) -> tuple:
    """Quarter of birth, and wages beside education, of 200 people."""
    quarter, hidden = rng.normal(size=200), rng.normal(size=200)
    schooling = 0.8 * quarter + 0.5 * hidden + 0.5 * rng.normal(size=200)
    wage = 0.5 * hidden + 0.7 * rng.normal(size=200)
    return _reals(quarter, np.stack([wage, schooling], -1))


def islands(rng: np.random.Generator) -> tuple:
    """Distances between ten islands, log population and tools."""
    places, population = rng.uniform(0, 4, (ISLANDS, 2)), rng.normal(size=ISLANDS)
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    return *_reals(distance, population), _counts(rng.poisson(np.exp(3 + 0.25 * population)))


def noisy_divorce(rng: np.random.Generator) -> tuple:
    """Age at marriage, measured rate of divorce and its standard error, of 50 states."""
    age, error = rng.normal(size=50), 0.2 + 0.5 * rng.random(50)
    return _reals(age, -0.6 * age + 0.7 * rng.normal(size=50) + error * rng.normal(size=50), error)


def incomplete_milk(rng: np.random.Generator) -> tuple:
    """Share of neocortex, with zeros where it is missing, these rows, log mass and energy."""
    mass = rng.normal(size=60)
    cortex = 0.7 * mass + 0.7 * rng.normal(size=60)
    energy = 0.6 * cortex - 0.7 * mass + 0.6 * rng.normal(size=60)
    missing = np.sort(rng.choice(60, 12, replace=False))
    cortex[missing] = 0.0
    return *_reals(cortex), missing, *_reals(mass, energy)


def cylinders(rng: np.random.Generator) -> tuple:
    """Height and weight of 150 people, in units of their means."""
    height = np.exp(rng.normal(0, 0.2, 150))
    return _reals(height, height**2.8 * np.exp(rng.normal(-0.05, 0.15, 150)))


def answers(rng: np.random.Generator) -> tuple:
    """Right and wrong answers of 30 people to 8 questions."""
    ability, difficulty = rng.normal(size=(30, 1)), rng.normal(size=8)
    sharpness = np.exp(0.3 * rng.normal(size=8))
    return (_counts(rng.random((30, 8)) < _sigmoid(sharpness * (ability - difficulty))),)


def survival(rng: np.random.Generator) -> tuple:
    """A covariate and the times to failure of 120 machines."""
    load = rng.normal(size=120)
    return _reals(load, rng.weibull(1.6, 120) * np.exp(0.5 - 0.4 * load))


def doses(rng: np.random.Generator) -> tuple:
    """Dose and response of 60 animals."""
    dose = rng.uniform(0.2, 10, 60)
    return _reals(dose, 3 * dose / (dose + 2) + 0.15 * rng.normal(size=60))


def growth(rng: np.random.Generator) -> tuple:
    """Age and size of 60 plants."""
    age = rng.uniform(0, 6, 60)
    return _reals(age, 5 * np.exp(-2.5 * np.exp(-0.8 * age)) + 0.15 * rng.normal(size=60))


def eruptions(rng: np.random.Generator) -> tuple:
    """Length of 120 eruptions, of two kinds."""
    short = rng.random(120) < 0.35
    return _reals(np.where(short, rng.normal(-1.5, 0.3, 120), rng.normal(0.9, 0.5, 120)))
