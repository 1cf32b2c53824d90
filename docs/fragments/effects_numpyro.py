# %% walk
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import Predictive

from numpyro_moments import effects, nested

random = np.random.default_rng(0)
months = 60
visits = random.poisson(np.exp(2.0 + np.sin(np.arange(months) / 9)))


def of_months(y):
    level = numpyro.sample("level", dist.Normal(0.0, 3.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    trend = effects.random_walk("trend", scale, months)
    with numpyro.plate("months", months):
        numpyro.sample("y", dist.Poisson(jnp.exp(level + trend)), obs=y)


posterior = nested(of_months, visits)
print(posterior.marginal("scale").interval(0.9))
draws = posterior.sample(500, jax.random.key(0))
trends = Predictive(of_months, draws)(jax.random.key(1), visits)["trend"]
print(np.quantile(trends, [0.05, 0.95], axis=0)[..., ::12].round(2))


# %% series
def of_days(y):
    level = numpyro.sample("level", dist.Normal(0.0, 3.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    kept = numpyro.sample("kept", dist.Uniform(0.0, 1.0))
    state = effects.autoregressive("state", scale, kept, months)
    with numpyro.plate("days", months):
        numpyro.sample("y", dist.Poisson(jnp.exp(level + state)), obs=y)


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


def of_places(y):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    share = numpyro.sample("share", dist.Uniform(0.0, 1.0))
    place = effects.bym2("place", scale, share, edges, side**2)
    with numpyro.plate("places", side**2):
        rate = expected * jnp.exp(level + place)
        numpyro.sample("y", dist.Poisson(rate), obs=y)


posterior = nested(of_places, cases)
print(posterior.marginal("share").interval(0.9))

# %% process
x = np.sort(random.uniform(0.0, 10.0, 80))
y = np.sin(x) + 0.3 * random.normal(size=80)


def process(x, y=None):
    height = numpyro.sample("height", dist.HalfNormal(1.0))
    length = numpyro.sample("length", dist.LogNormal(0.5, 0.5))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    curve = effects.hilbert_space(
        "curve", x, height, length, between=(0.0, 10.0)
    )
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(curve, noise), obs=y)


posterior = nested(process, x, y)
print(posterior.marginal("length").interval(0.9))
draws = posterior.sample(500, jax.random.key(0))
new = np.linspace(0.5, 9.5, 4)
curves = Predictive(process, draws)(jax.random.key(1), new)["curve"]
print(curves.mean(0), np.sin(new))


# %% spline
def spline(x, y=None):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    curve = effects.spline("curve", x, scale, between=(0.0, 10.0))
    with numpyro.plate("rows", len(x)):
        mean = level + slope * (x - 5.0) + curve
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


posterior = nested(spline, x, y)
print(posterior.marginal("scale").interval(0.9))

# %% groups
school = random.integers(0, 10, 200)
year = random.integers(0, 3, 200)
good = 0.8 * random.normal(size=10)[school] + random.normal(size=200)
passed = (good > 0).astype(float)


def of_pupils(y):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    of_schools = numpyro.sample("of_schools", dist.HalfNormal(1.0))
    of_years = numpyro.sample("of_years", dist.HalfNormal(1.0))
    logit = level + effects.groups("school", of_schools, school, 10)
    logit += effects.groups("year", of_years, 3 * school + year, 30)
    with numpyro.plate("pupils", 200):
        numpyro.sample("y", dist.Bernoulli(logits=logit), obs=y)


posterior = nested(of_pupils, passed)
print(posterior.marginal("of_schools").interval(0.9))

# %% fit
from numpyro_moments import GaussianGuide, fit

options = {"method": "newton", "float64": True, "progress_bar": False}
result = fit(of_months, GaussianGuide(), visits, **options)
print(-result.loss)
