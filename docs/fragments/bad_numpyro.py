# %% line
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from numpyro_moments import DVIGuide, diagnose, fit

random = np.random.default_rng(0)
age = random.uniform(40.0, 70.0, 100)
pressure = 2.0 + 0.05 * age + 0.3 * random.normal(size=100)


def line(age, pressure=None):
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 10.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("patients", len(age)):
        numpyro.sample(
            "pressure",
            dist.Normal(intercept + slope * age, noise),
            obs=pressure,
        )


result = fit(line, DVIGuide(), age, pressure, method="newton", float64=True)
problems = diagnose(line, result, age, pressure).problems

# %% correct it
from numpyro_moments import linear_response

response = linear_response(line, result, age, pressure)
for name in ("intercept", "slope"):
    before = float(result.params[f"{name}_auto_scale"])
    after = float(response.standard_deviation(name))
    print(f"{name}: sd {before:.4f} → {after:.4f}")
print(f"correlation {float(response.correlation()[0, 1]):.3f}")

# %% other coordinates
centred = fit(
    line, DVIGuide(), age - 55.0, pressure, method="newton", float64=True
)
problems = diagnose(line, centred, age - 55.0, pressure).problems

# %% schools
effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(error, effect=None):
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    spread = numpyro.sample("spread", dist.HalfNormal(5.0))
    with numpyro.plate("schools", 8):
        level = numpyro.sample("level", dist.Normal(mean, spread))
        numpyro.sample("effect", dist.Normal(level, error), obs=effect)


result = fit(
    schools, DVIGuide(), error, effect, method="newton", float64=True
)
problems = diagnose(schools, result, error, effect).problems

# %% not centred
from numpyro.infer.reparam import LocScaleReparam

moved = numpyro.handlers.reparam(schools, {"level": LocScaleReparam(0.0)})
result = fit(
    moved, DVIGuide(), error, effect, method="newton", float64=True
)
problems = diagnose(moved, result, error, effect).problems

# %% weigh
response = linear_response(moved, result, error, effect)
for weighted in (False, True):
    draws = response.sample(
        4000, jax.random.key(0), importance_weights=weighted
    )
    spread = np.asarray(draws["spread"])
    print(
        "weighted" if weighted else "plain",
        np.quantile(spread, [0.05, 0.5, 0.95]).round(1),
    )


# %% another prior
def away_from_zero(error, effect=None):
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    spread = numpyro.sample("spread", dist.LogNormal(1.5, 0.8))
    with numpyro.plate("schools", 8):
        deviation = numpyro.sample("deviation", dist.Normal(0.0, 1.0))
        numpyro.sample(
            "effect",
            dist.Normal(mean + spread * deviation, error),
            obs=effect,
        )


other = fit(
    away_from_zero, DVIGuide(), error, effect, method="newton", float64=True
)
diagnosis = diagnose(away_from_zero, other, error, effect, verbose=False)
for check in (
    "standard deviations",
    "standard deviations of linear response",
):
    finding = diagnosis[check]
    print(f"{check}: {finding.value} ({finding.verdict.value})")

# %% ask nuts
from numpyro_moments import compare_with_nuts

compare_with_nuts(
    moved, result, error, effect, num_warmup=200, num_samples=200
)

# %% counts
x = random.normal(size=100)
visits = random.poisson(
    np.exp(1.0 + 0.5 * x + 0.8 * random.normal(size=100))
)


def poisson(x, visits=None):
    effects = numpyro.sample(
        "effects", dist.Normal(0.0, 2.0).expand([2]).to_event(1)
    )
    with numpyro.plate("patients", len(x)):
        rate = jnp.exp(effects[0] + effects[1] * x)
        numpyro.sample("visits", dist.Poisson(rate), obs=visits)


result = fit(poisson, DVIGuide(), x, visits, method="newton", float64=True)
problems = diagnose(poisson, result, x, visits).problems


# %% another likelihood
def overdispersed(x, visits=None):
    effects = numpyro.sample(
        "effects", dist.Normal(0.0, 2.0).expand([2]).to_event(1)
    )
    shape = numpyro.sample("shape", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("patients", len(x)):
        rate = shape * jnp.exp(-effects[0] - effects[1] * x)
        numpyro.sample("visits", dist.GammaPoisson(shape, rate), obs=visits)


result = fit(
    overdispersed, DVIGuide(), x, visits, method="newton", float64=True
)
problems = diagnose(overdispersed, result, x, visits).problems

# %% refused
from numpyro_moments import UnsupportedMoments

t = np.linspace(0.0, 1.0, 30)
height = np.sin(6 * t) + 0.2 * random.normal(size=30)


def process(t, height):
    length = numpyro.sample("length", dist.LogNormal(-1.0, 0.5))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    distances = (t[:, None] - t) / length
    covariance = jnp.exp(-(distances**2) / 2)
    covariance = covariance + noise**2 * jnp.eye(len(t))
    curve = dist.MultivariateNormal(
        jnp.zeros(len(t)), covariance_matrix=covariance
    )
    numpyro.sample("height", curve, obs=height)


try:
    fit(process, DVIGuide(), t, height, steps=1)
except UnsupportedMoments as refusal:
    print(f"{refusal.cause}\n\n{refusal.remedy}")

# %% hold the draws
held = fit(
    process,
    DVIGuide(),
    t,
    height,
    method="newton",
    float64=True,
    unsupported="held draws",
)
print(held)
print(linear_response(process, held, t, height).summary())

# %% draw the sites
from numpyro_moments import DeterministicELBO

objective = DeterministicELBO(sample_sites=["length", "noise"])
drawn = fit(
    process,
    DVIGuide(),
    t,
    height,
    objective=objective,
    steps=600,
    learning_rate=0.03,
)
diagnosis = diagnose(
    process, drawn, t, height, objective=objective, verbose=False
)
for finding in diagnosis.findings:
    print(f"{finding.check}: {finding.value} ({finding.verdict.value})")

# %% two modes
from numpyro.infer import init_to_value

squared = 1.5 + random.normal(size=50)


def square(y):
    root = numpyro.sample("root", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(root**2, 1.0), obs=y)


for start in (1.0, -1.0):
    guide = DVIGuide(init_loc_fn=init_to_value(values={"root": start}))
    result = fit(square, guide, squared, method="newton", float64=True)
    good = diagnose(square, result, squared, verbose=False).is_good
    root = float(result.params["root_auto_loc"])
    print(f"root {root:.3f}, loss {result.loss:.4f}, {good}")
