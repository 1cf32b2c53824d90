# %% data
import numpy as np
import pyro
import pyro.distributions as dist
import torch

pyro.set_rng_seed(0)
random = np.random.default_rng(1)
schools, pupils = 20, 300
school = random.integers(0, schools, pupils)
hours = random.normal(size=pupils)
truth = random.multivariate_normal(
    [1.0, 0.5], [[0.64, -0.24], [-0.24, 0.25]], size=schools
)
grade = (
    truth[school, 0] + truth[school, 1] * hours + random.normal(size=pupils)
)


# %% varying slopes
def varying_slopes(school, hours, grade=None):
    mean = pyro.sample(
        "mean", dist.Normal(0.0, 2.0).expand([2]).to_event(1)
    )
    spread = pyro.sample(
        "spread", dist.Exponential(1.0).expand([2]).to_event(1)
    )
    factor = spread[..., None] * pyro.sample(
        "factor", dist.LKJCholesky(2, 2.0)
    )
    noise = pyro.sample("noise", dist.Exponential(1.0))
    with pyro.plate("schools", 20):
        effects = pyro.sample(
            "effects", dist.MultivariateNormal(mean, scale_tril=factor)
        )
    with pyro.plate("pupils", len(hours)):
        expected = effects[..., school, 0] + effects[..., school, 1] * hours
        pyro.sample("grade", dist.Normal(expected, noise), obs=grade)


# %% fit slopes
from pyro_moments import DVIGuide, fit, linear_response

data = (torch.as_tensor(school), hours, grade)
slopes = fit(
    varying_slopes, DVIGuide(), *data, method="newton", float64=True
)
print(slopes.reason)

# %% slopes response
response = linear_response(varying_slopes, slopes, *data, float64=True)


def intervals(response, *names):
    draws = response.sample(2000)
    for name in names:
        lower, upper = np.quantile(
            np.asarray(draws[name]), [0.05, 0.95], axis=0
        ).round(2)
        print(f"{name}: {lower} to {upper}")
    return draws


draws = intervals(response, "mean", "spread", "noise")
correlation = np.asarray(draws["factor"])[:, 1, 0]
ends = np.quantile(correlation, [0.05, 0.95]).round(2)
print(f"correlation: {ends}; true: -0.6")

# %% not centred
from pyro_moments import GaussianGuide


def not_centred(school, hours, grade=None):
    mean = pyro.sample("mean", dist.Normal(0.0, 2.0))
    slope = pyro.sample("slope", dist.Normal(0.0, 2.0))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    with pyro.plate("schools", 20):
        offset = pyro.sample("offset", dist.Normal(0.0, 1.0))
    level = mean + spread * offset[..., school]
    with pyro.plate("pupils", len(hours)):
        expected = level + slope * hours
        pyro.sample("grade", dist.Normal(expected, noise), obs=grade)


data = (torch.as_tensor(school), hours, grade)
options = {"method": "newton", "float64": True}
mean_field = fit(not_centred, DVIGuide(), *data, **options)
gaussian = fit(
    not_centred, GaussianGuide(), *data, start=mean_field, **options
)
print(f"negative ELBO {mean_field.loss:.1f}, with covariances", end=" ")
print(f"{gaussian.loss:.1f} after {gaussian.steps} steps")

# %% not centred response
for result in (mean_field, gaussian):
    print(
        linear_response(not_centred, result, *data, float64=True)
        .summary()
        .split("offset[1]")[0]
    )

# %% counts
exposure = random.uniform(0.5, 2.0, pupils)
absences = random.poisson(
    exposure * np.exp(0.5 + 0.4 * hours + 0.5 * truth[school, 0])
)


def counts(school, hours, exposure, absences=None):
    intercept = pyro.sample("intercept", dist.Normal(0.0, 1.0))
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    with pyro.plate("schools", 20):
        level = pyro.sample("level", dist.Normal(intercept, spread))
    with pyro.plate("pupils", len(hours)):
        rate = exposure * torch.exp(level[..., school] + slope * hours)
        pyro.sample("absences", dist.Poisson(rate), obs=absences)


data = (torch.as_tensor(school), hours, exposure, absences)
poisson = fit(counts, DVIGuide(), *data, method="newton", float64=True)
print(poisson.reason)

# %% counts response
print(
    linear_response(counts, poisson, *data, float64=True)
    .summary()
    .split("level[1]")[0]
)

# %% ordinal
cuts = np.array([-1.0, 0.5, 1.5])
chance = 1 / (1 + np.exp(-(cuts - hours[:, None])))
answer = (random.uniform(size=(pupils, 1)) > chance).sum(1)


def ordinal(hours, answer=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    free = dist.Normal(0.0, 1.5).expand([3]).to_event(1)
    ordered = dist.TransformedDistribution(
        free, dist.transforms.OrderedTransform()
    )
    cuts = pyro.sample("cuts", ordered)
    with pyro.plate("pupils", len(hours)):
        pyro.sample(
            "answer", dist.OrderedLogistic(slope * hours, cuts), obs=answer
        )


ordinal_fit = fit(
    ordinal, DVIGuide(), hours, answer, method="newton", float64=True
)
print(ordinal_fit.reason)

# %% ordinal response
response = linear_response(
    ordinal, ordinal_fit, hours, answer, float64=True
)
draws = intervals(response, "slope", "cuts")

# %% predict
from pyro_moments import predict

probabilities = predict(ordinal, ordinal_fit, np.array([-2.0, 0.0, 2.0]))[
    "answer"
].probs
np.asarray(probabilities).round(2)
