# %% walk
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import Predictive

from pyro_moments import effects, nested

random = np.random.default_rng(0)
months = 60
visits = random.poisson(np.exp(2.0 + np.sin(np.arange(months) / 9)))
visits = torch.tensor(visits, dtype=torch.float)


def of_months(y):
    level = pyro.sample("level", dist.Normal(0.0, 3.0))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    trend = effects.random_walk("trend", scale, months)
    with pyro.plate("months", months):
        pyro.sample("y", dist.Poisson(torch.exp(level + trend)), obs=y)


posterior = nested(of_months, visits)
print(posterior.marginal("scale").interval(0.9))
draws = posterior.sample(500)
trends = Predictive(of_months, draws)(visits)["trend"]
print(np.quantile(trends, [0.05, 0.95], axis=0)[..., ::12].round(2))


# %% series
def of_days(y):
    level = pyro.sample("level", dist.Normal(0.0, 3.0))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    kept = pyro.sample("kept", dist.Uniform(0.0, 1.0))
    state = effects.autoregressive("state", scale, kept, months)
    with pyro.plate("days", months):
        pyro.sample("y", dist.Poisson(torch.exp(level + state)), obs=y)


posterior = nested(of_days, visits)
print(posterior.marginal("kept").interval(0.9))

# %% places
side = 7
number = np.arange(side**2).reshape(side, side)
right = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], 1)
down = np.stack([number[:-1].ravel(), number[1:].ravel()], 1)
edges = np.concatenate([right, down])
risk = np.sin(number / 12).ravel() + 0.2 * random.normal(size=side**2)
expected = random.uniform(5.0, 20.0, side**2)
cases = random.poisson(expected * np.exp(risk))
cases, expected = torch.tensor(cases), torch.tensor(expected)


def of_places(y):
    level = pyro.sample("level", dist.Normal(0.0, 1.0))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    share = pyro.sample("share", dist.Uniform(0.0, 1.0))
    place = effects.bym2("place", scale, share, edges, side**2)
    with pyro.plate("places", side**2):
        rate = expected * torch.exp(level + place)
        pyro.sample("y", dist.Poisson(rate), obs=y)


posterior = nested(of_places, cases)
print(posterior.marginal("share").interval(0.9))

# %% process
x = np.sort(random.uniform(0.0, 10.0, 80))
y = np.sin(x) + 0.3 * random.normal(size=80)
x, y = torch.tensor(x), torch.tensor(y)


def process(x, y=None):
    height = pyro.sample("height", dist.HalfNormal(1.0))
    length = pyro.sample("length", dist.LogNormal(0.5, 0.5))
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    curve = effects.hilbert_space(
        "curve", x, height, length, between=(0.0, 10.0)
    )
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(curve, noise), obs=y)


posterior = nested(process, x, y)
print(posterior.marginal("length").interval(0.9))
draws = posterior.sample(500)
new = torch.linspace(0.5, 9.5, 4)
curves = Predictive(process, draws)(new)["curve"]
print(curves.mean(0), torch.sin(new))


# %% spline
def spline(x, y=None):
    level = pyro.sample("level", dist.Normal(0.0, 1.0))
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    curve = effects.spline("curve", x, scale, between=(0.0, 10.0))
    with pyro.plate("rows", len(x)):
        mean = level + slope * (x - 5.0) + curve
        pyro.sample("y", dist.Normal(mean, noise), obs=y)


posterior = nested(spline, x, y)
print(posterior.marginal("scale").interval(0.9))

# %% groups
school = random.integers(0, 10, 200)
year = random.integers(0, 3, 200)
good = 0.8 * random.normal(size=10)[school] + random.normal(size=200)
passed = torch.tensor(good > 0).float()


def of_pupils(y):
    level = pyro.sample("level", dist.Normal(0.0, 1.0))
    of_schools = pyro.sample("of_schools", dist.HalfNormal(1.0))
    of_years = pyro.sample("of_years", dist.HalfNormal(1.0))
    logit = level + effects.groups("school", of_schools, school, 10)
    logit += effects.groups("year", of_years, 3 * school + year, 30)
    with pyro.plate("pupils", 200):
        pyro.sample("y", dist.Bernoulli(logits=logit), obs=y)


posterior = nested(of_pupils, passed)
print(posterior.marginal("of_schools").interval(0.9))

# %% fit
from pyro_moments import GaussianGuide, fit

options = {"method": "newton", "float64": True, "progress_bar": False}
result = fit(of_months, GaussianGuide(), visits, **options)
print(-result.loss)
