"""Models of statistics textbooks as one writes them in Pyro."""

# ruff: noqa: D103 (the table of models_tried_textbooks.py says what each model is)

from __future__ import annotations

import math

import pyro.distributions as dist
import torch
from pyro import plate, sample


def heights(weight, height=None):
    a = sample("a", dist.Normal(154.0, 20.0))
    b = sample("b", dist.LogNormal(0.0, 1.0))
    sigma = sample("sigma", dist.Uniform(0.0, 50.0))
    with plate("people", len(weight)):
        sample("height", dist.Normal(a + b * weight, sigma), obs=height)


def milk(clade, energy=None):
    with plate("clades", 4):
        a = sample("a", dist.Normal(0.0, 0.5))
    sigma = sample("sigma", dist.Exponential(1.0))
    with plate("species", len(clade)):
        sample("energy", dist.Normal(a[clade], sigma), obs=energy)


def divorce(age, rate, divorces=None):
    a = sample("a", dist.Normal(0.0, 0.2))
    b_age = sample("b_age", dist.Normal(0.0, 0.5))
    b_rate = sample("b_rate", dist.Normal(0.0, 0.5))
    sigma = sample("sigma", dist.Exponential(1.0))
    nu = sample("nu", dist.Gamma(2.0, 0.1))
    with plate("states", len(age)):
        mean = a + b_age * age + b_rate * rate
        sample("divorces", dist.StudentT(nu, mean, sigma), obs=divorces)


def pulls(actor, treatment, lever=None):
    with plate("actors", 7):
        a = sample("a", dist.Normal(0.0, 1.5))
    with plate("treatments", 4):
        b = sample("b", dist.Normal(0.0, 0.5))
    with plate("pulls", len(actor)):
        sample("lever", dist.Bernoulli(logits=a[actor] + b[treatment]), obs=lever)


def tools(contact, population, count=None):
    with plate("contacts", 2):
        a = sample("a", dist.Normal(3.0, 0.5))
        b = sample("b", dist.Normal(0.0, 0.2))
    with plate("societies", len(contact)):
        sample("count", dist.Poisson(torch.exp(a[contact] + b[contact] * population)), obs=count)


def inventions(contact, population, count=None):
    with plate("contacts", 2):
        a = sample("a", dist.Normal(1.0, 1.0))
        b = sample("b", dist.Exponential(1.0))
    g = sample("g", dist.Exponential(1.0))
    with plate("societies", len(contact)):
        rate = torch.exp(a[contact]) * population ** b[contact] / g
        sample("count", dist.Poisson(rate), obs=count)


def careers(income, choice=None):
    a = sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    b = sample("b", dist.HalfNormal(0.5))
    scores = torch.cat([a, torch.zeros(1)]) + b * income
    with plate("people", 200):
        sample("choice", dist.Categorical(logits=scores), obs=choice)


def admissions(gender, applications, admitted=None):
    with plate("genders", 2):
        a = sample("a", dist.Normal(0.0, 1.5))
    theta = sample("phi", dist.Exponential(1.0)) + 2.0
    with plate("rows", len(gender)):
        chance = torch.sigmoid(a[gender])
        of_chance = dist.BetaBinomial(chance * theta, (1 - chance) * theta, applications)
        sample("admitted", of_chance, obs=admitted)


def dispersed_tools(population, count=None):
    a = sample("a", dist.Normal(3.0, 0.5))
    b = sample("b", dist.Normal(0.0, 0.5))
    phi = sample("phi", dist.Exponential(1.0))
    with plate("societies", len(population)):
        sample("count", dist.GammaPoisson(phi, phi / torch.exp(a + b * population)), obs=count)


def monastery(manuscripts=None):
    drunk = sample("drunk", dist.Normal(-1.5, 1.0))
    rate = sample("rate", dist.Normal(1.0, 0.5))
    with plate("days", 200):
        counts = dist.ZeroInflatedPoisson(torch.exp(rate), gate=torch.sigmoid(drunk))
        sample("manuscripts", counts, obs=manuscripts)


def cutpoints(count):
    free = dist.Normal(0.0, 1.5).expand([count]).to_event(1)
    ordered = dist.TransformedDistribution(free, dist.transforms.OrderedTransform())
    return sample("cutpoints", ordered)


def trolley(action, intention, contact, answer=None):
    b = sample("b", dist.Normal(0.0, 0.5).expand([3]).to_event(1))
    cuts = cutpoints(6)
    with plate("questions", len(action)):
        score = b[0] * action + b[1] * intention + b[2] * contact
        sample("answer", dist.OrderedLogistic(score, cuts), obs=answer)


def education(action, level, answer=None):
    b_action = sample("b_action", dist.Normal(0.0, 1.0))
    b_level = sample("b_level", dist.Normal(0.0, 1.0))
    delta = sample("delta", dist.Dirichlet(torch.full((4,), 2.0)))
    cuts = cutpoints(4)
    steps = torch.cat([torch.zeros(1), delta.cumsum(-1)])
    with plate("questions", len(level)):
        score = b_action * action + b_level * steps[level]
        sample("answer", dist.OrderedLogistic(score, cuts), obs=answer)


def tadpoles(density, survivors=None):
    a_bar = sample("a_bar", dist.Normal(0.0, 1.5))
    sigma = sample("sigma", dist.Exponential(1.0))
    with plate("tanks", len(density)):
        a = sample("a", dist.Normal(a_bar, sigma))
        sample("survivors", dist.Binomial(density, logits=a), obs=survivors)


def chimpanzees(actor, block, treatment, lever=None):
    a_bar = sample("a_bar", dist.Normal(0.0, 1.5))
    sigma_a = sample("sigma_a", dist.Exponential(1.0))
    sigma_g = sample("sigma_g", dist.Exponential(1.0))
    with plate("actors", 7):
        z = sample("z", dist.Normal(0.0, 1.0))
    with plate("blocks", 6):
        x = sample("x", dist.Normal(0.0, 1.0))
    with plate("treatments", 4):
        b = sample("b", dist.Normal(0.0, 0.5))
    with plate("pulls", len(actor)):
        logits = a_bar + z[actor] * sigma_a + x[block] * sigma_g + b[treatment]
        sample("lever", dist.Bernoulli(logits=logits), obs=lever)


def cafes(cafe, afternoon, waiting=None):
    a = sample("a", dist.Normal(5.0, 2.0))
    b = sample("b", dist.Normal(-1.0, 0.5))
    sigma = sample("sigma", dist.Exponential(1.0))
    scales = sample("sigma_cafe", dist.Exponential(1.0).expand([2]).to_event(1))
    factor = sample("L", dist.LKJCholesky(2, 2.0))
    with plate("cafes", 20):
        effects = dist.MultivariateNormal(torch.stack([a, b]), scale_tril=scales[:, None] * factor)
        ab = sample("ab", effects)
    with plate("visits", len(cafe)):
        sample("waiting", dist.Normal(ab[cafe, 0] + ab[cafe, 1] * afternoon, sigma), obs=waiting)


def gifts(first, second, forth=None, back=None):
    a = sample("a", dist.Normal(0.0, 1.0))
    scales = sample("sigma_gr", dist.Exponential(1.0).expand([2]).to_event(1))
    factor = sample("L_gr", dist.LKJCholesky(2, 4.0))
    with plate("households", 12):
        gr = sample(
            "gr", dist.MultivariateNormal(torch.zeros(2), scale_tril=scales[:, None] * factor)
        )
    z = sample("z", dist.Normal(0.0, 1.0).expand([2, len(first)]).to_event(2))
    pair_factor = sample("L_d", dist.LKJCholesky(2, 8.0))
    sigma_d = sample("sigma_d", dist.Exponential(1.0))
    d = ((sigma_d * pair_factor) @ z).T
    with plate("pairs", len(first)):
        rate_forth = torch.exp(a + gr[first, 0] + gr[second, 1] + d[:, 0])
        rate_back = torch.exp(a + gr[second, 0] + gr[first, 1] + d[:, 1])
        sample("forth", dist.Poisson(rate_forth), obs=forth)
        sample("back", dist.Poisson(rate_back), obs=back)


def wages(quarter, both=None):
    a_wage = sample("a_wage", dist.Normal(0.0, 0.2))
    a_school = sample("a_school", dist.Normal(0.0, 0.2))
    b_school = sample("b_school", dist.Normal(0.0, 0.5))
    b_quarter = sample("b_quarter", dist.Normal(0.0, 0.5))
    factor = sample("L", dist.LKJCholesky(2, 2.0))
    scales = sample("sigma", dist.Exponential(1.0).expand([2]).to_event(1))
    wage = a_wage + b_school * both[:, 1]
    school = a_school + b_quarter * quarter
    with plate("people", len(quarter)):
        mean = torch.stack([wage, school], -1)
        joint = dist.MultivariateNormal(mean, scale_tril=scales[:, None] * factor)
        sample("both", joint, obs=both)


def islands(distance, population, count=None):
    a = sample("a", dist.Exponential(1.0))
    b = sample("b", dist.Normal(0.0, 0.5))
    eta = sample("eta", dist.Exponential(2.0))
    rho = sample("rho", dist.Exponential(0.5))
    covariance = eta * torch.exp(-rho * distance**2) + 0.01 * torch.eye(len(distance))
    k = sample("k", dist.MultivariateNormal(torch.zeros(len(distance)), covariance))
    with plate("societies", len(distance)):
        sample("count", dist.Poisson(torch.exp(2.0 + a + b * population + k)), obs=count)


def noisy_divorce(age, observed, error):
    a = sample("a", dist.Normal(0.0, 0.2))
    b = sample("b", dist.Normal(0.0, 0.5))
    sigma = sample("sigma", dist.Exponential(1.0))
    with plate("states", len(age)):
        true = sample("true", dist.Normal(a + b * age, sigma))
        sample("observed", dist.Normal(true, error), obs=observed)


def incomplete_milk(cortex, missing, mass, energy=None):
    a = sample("a", dist.Normal(0.0, 0.5))
    b_cortex = sample("b_cortex", dist.Normal(0.0, 0.5))
    b_mass = sample("b_mass", dist.Normal(0.0, 0.5))
    sigma = sample("sigma", dist.Exponential(1.0))
    nu = sample("nu", dist.Normal(0.0, 0.5))
    sigma_cortex = sample("sigma_cortex", dist.Exponential(1.0))
    unseen = dist.Normal(0.0, 1.0).expand([len(missing)]).mask(False).to_event(1)
    cortex = cortex.index_put((missing,), sample("unseen", unseen))
    with plate("species", len(mass)):
        sample("cortex", dist.Normal(nu, sigma_cortex), obs=cortex)
        mean = a + b_cortex * cortex + b_mass * mass
        sample("energy", dist.Normal(mean, sigma), obs=energy)


def cylinders(height, weight=None):
    p = sample("p", dist.Beta(2.0, 18.0))
    k = sample("k", dist.Exponential(0.5))
    exponent = sample("exponent", dist.Normal(3.0, 0.5))
    sigma = sample("sigma", dist.Exponential(1.0))
    with plate("people", len(height)):
        typical = math.pi * k * p**2 * height**exponent
        sample("weight", dist.LogNormal(torch.log(typical), sigma), obs=weight)


def one_parameter(right=None):
    items = plate("items", 8, dim=-1)
    with items:
        b = sample("b", dist.Normal(0.0, 1.0))
    sigma = sample("sigma", dist.HalfCauchy(1.0))
    with plate("people", 30, dim=-2):
        theta = sample("theta", dist.Normal(0.0, sigma))
        with items:
            sample("right", dist.Bernoulli(logits=theta - b), obs=right)


def two_parameters(right=None):
    items = plate("items", 8, dim=-1)
    with items:
        b = sample("b", dist.Normal(0.0, 1.0))
        a = sample("a", dist.LogNormal(0.0, 0.5))
    with plate("people", 30, dim=-2):
        theta = sample("theta", dist.Normal(0.0, 1.0))
        with items:
            sample("right", dist.Bernoulli(logits=a * (theta - b)), obs=right)


def survival(load, time=None):
    a = sample("a", dist.Normal(0.0, 1.0))
    b = sample("b", dist.Normal(0.0, 1.0))
    shape = sample("shape", dist.LogNormal(0.0, 0.5))
    with plate("machines", len(load)):
        sample("time", dist.Weibull(torch.exp(a + b * load), shape), obs=time)


def doses(dose, response=None):
    largest = sample("largest", dist.LogNormal(1.0, 0.5))
    half = sample("half", dist.LogNormal(0.0, 1.0))
    sigma = sample("sigma", dist.Exponential(1.0))
    with plate("animals", len(dose)):
        sample("response", dist.Normal(largest * dose / (half + dose), sigma), obs=response)


def growth(age, size=None):
    largest = sample("largest", dist.LogNormal(1.5, 0.5))
    shift = sample("shift", dist.LogNormal(0.5, 0.5))
    rate = sample("rate", dist.LogNormal(0.0, 0.5))
    sigma = sample("sigma", dist.Exponential(1.0))
    with plate("plants", len(age)):
        mean = largest * torch.exp(-shift * torch.exp(-rate * age))
        sample("size", dist.Normal(mean, sigma), obs=size)


def eruptions(length=None):
    share = sample("share", dist.Dirichlet(torch.ones(2)))
    centre = sample("centre", dist.Normal(torch.tensor([-1.0, 1.0]), 1.0).to_event(1))
    scale = sample("scale", dist.LogNormal(0.0, 0.5).expand([2]).to_event(1))
    with plate("eruptions", 120):
        kinds, parts = dist.Categorical(share), dist.Normal(centre, scale)
        sample("length", dist.MixtureSameFamily(kinds, parts), obs=length)
