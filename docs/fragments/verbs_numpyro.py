# %% model
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from numpyro_moments import DVIGuide, fit

random = np.random.default_rng(0)
x = random.normal(size=(120, 3)).astype(np.float32)
y = random.poisson(np.exp(0.5 + x @ [0.5, -0.5, 0.0])).astype(np.float32)


def model(x, y=None):
    effects = numpyro.sample(
        "effects", dist.Normal(0.0, 1.0).expand([3]).to_event(1)
    )
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample(
            "obs", dist.Poisson(jnp.exp(x @ effects + level)), obs=y
        )


result = fit(model, DVIGuide(), x, y, method="newton", float64=True)

# %% steps by hand
from numpyro_moments import SVI, DeterministicELBO

svi = SVI(model, DVIGuide(), DeterministicELBO())
losses = svi.run(jax.random.key(0), 200, x, y, progress_bar=False).losses
print(f"{losses[0]:.1f} → {losses[-1]:.1f}")

# %% replicated data
from numpyro_moments import (
    linear_response,
    predictive_p_values,
    to_inference_data,
)

response = linear_response(model, result, x, y)
data = to_inference_data(model, response, x, y)
statistics = {
    "largest": np.max,
    "zeros": lambda counts: np.mean(counts == 0),
}
predictive_p_values(data, statistics)

# %% weights
from numpyro_moments import loo, loo_weights

print(loo(data).pareto_k_joint, dict(loo_weights(data).sizes))

# %% chains
from numpyro.infer import MCMC, NUTS

from numpyro_moments import init_to_fit

kernel = NUTS(model, init_strategy=init_to_fit(result))
chains = MCMC(kernel, num_samples=100, num_warmup=50, progress_bar=False)
chains.run(jax.random.key(0), x, y)
print(np.asarray(chains.get_samples()["effects"].mean(0)).round(2))

# %% neighbours
from numpyro_moments import TridiagonalGuide

correlated = TridiagonalGuide()
trained = fit(model, correlated, x, y, steps=500)
correlated.summary(trained.params)

# %% a prior that is learnt
from numpyro_moments import EmpiricalBayesNormal


def shrunk(x, y=None):
    effects = numpyro.sample("effects", EmpiricalBayesNormal([3]))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("obs", dist.Poisson(jnp.exp(x @ effects)), obs=y)


print(f"loss {fit(shrunk, DVIGuide(), x, y, steps=500).loss:.1f}")

# %% weights that are off
from flax import linen
from numpyro import handlers
from numpyro.contrib.module import random_flax_module

from numpyro_moments import (
    Horseshoe,
    HorseshoeReparam,
    LogUniform,
    pruning_report,
    smaller_network,
)

net = linen.Sequential([linen.Dense(20), linen.relu, linen.Dense(1)])
prior = {"layers_0.kernel": LogUniform(), "layers_2.kernel": LogUniform()}


def sparse(x, y=None):
    level = numpyro.sample("level", Horseshoe(0.1))
    mean = (
        random_flax_module("net", net, prior=prior, input_shape=(1, 3))(x)[
            :, 0
        ]
        + level
    )
    with numpyro.plate("rows", len(x)):
        numpyro.sample("obs", dist.Normal(mean, 0.3), obs=y)


trained = fit(sparse, DVIGuide(init_scale=0.5), x, np.log1p(y), steps=500)
kernels = ["net/layers_0.kernel", "net/layers_2.kernel"]
report = pruning_report(sparse, trained, x, np.log1p(y), sites=kernels)
print(report)
print(
    jax.tree.map(
        jnp.shape,
        smaller_network(net, report, trained.params["net$params"])[1],
    )
)
hierarchy = handlers.reparam(sparse, config={"level": HorseshoeReparam()})

# %% noise without a prior
from numpyro_moments import VBPGuide


def network(x, y=None):
    first = numpyro.sample(
        "first", dist.Normal(0.0, 0.3).expand([3, 20]).to_event(2)
    )
    last = numpyro.sample(
        "last", dist.Normal(0.0, 0.3).expand([20, 1]).to_event(2)
    )
    sigma = numpyro.param(
        "sigma", 1.0, constraint=dist.constraints.positive
    )
    with numpyro.plate("rows", len(x)):
        mean = (jax.nn.relu(x @ first) @ last)[:, 0]
        numpyro.sample("obs", dist.Normal(mean, sigma), obs=y)


elbo = DeterministicELBO(covariance="diagonal", rules="vbp")
options = {
    "precision": "type-II",
    "batch_size": 20,
    "epochs": 50,
    "by_draws": False,
}
trained = fit(
    network, VBPGuide(), x, np.log1p(y), objective=elbo, **options
)
print(f"noise {float(trained.params['sigma']):.2f}")

# %% moments of a function
from numpyro_moments import Moments, propagate

noisy = Moments(jnp.zeros(3), covariance=0.1 * jnp.eye(3))
moments = propagate(lambda z: jnp.sum(jnp.exp(z)), noisy, covariance="full")
print(float(moments.mean), float(moments.variance))

# %% units that draw
from numpyro_moments import units


def chance(x, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros((1, 2)), 1.0).to_event(2))
    drawn = units.bernoulli_logistic(numpyro.prng_key(), x @ w)
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(drawn.sum(-1), 0.1), obs=y)


ones, drawn = jnp.ones((3, 1)), jnp.array([2.0, 2.0, 1.0])
print(f"loss {fit(chance, DVIGuide(), ones, drawn, steps=200).loss:.1f}")

# %% statistics of the data
from flax import nnx

from numpyro_moments import (
    AnalyticNorm,
    initialise_from_statistics,
    propagate_statistics,
)

images = 0.3 + 0.9 * jax.random.normal(jax.random.key(0), (200, 12, 12, 1))
mean, variance = images.mean((0, 1, 2)), images.var((0, 1, 2))
rngs, valid = nnx.Rngs(0), {"padding": "VALID", "rngs": nnx.Rngs(1)}
last = nnx.Linear(800, 4, rngs=rngs)


def flat(h):
    return h.reshape(len(h), -1)


net = nnx.Sequential(nnx.Conv(1, 8, (3, 3), **valid), nnx.relu, flat, last)
initialise_from_statistics(net, mean, variance)
print(f"standard deviation of the outputs: {net(images).std():.2f}")

normalised = nnx.Sequential(
    nnx.Conv(1, 8, (3, 3), **valid), AnalyticNorm(8)
)
propagate_statistics(normalised, mean, variance)
print(f"of one image: {normalised(images[:1]).std():.2f}")

# %% where a variance comes from
from numpyro_moments import predict

prediction = predict(model, result, x, covariance="backward")["obs"]
print(prediction.attribution())

# %% a likelihood of your own
from numpyro_moments import expected_log_prob, predict, predictive_moments


class Sensor(dist.Normal):
    """A measurement with a known error."""


@expected_log_prob(Sensor)
def expected(sensor, value):
    loc = sensor.loc.gaussian()
    at_mean = dist.Normal(loc.mean, sensor.scale).log_prob(value)
    return at_mean - 0.5 * loc.variance / sensor.scale**2


@predictive_moments(Sensor)
def predicted(sensor):
    loc = sensor.loc.gaussian()
    noise = sensor.scale**2 * jnp.ones_like(loc.mean)
    return (
        loc.mean,
        loc.variance,
        noise,
        dist.Normal(loc.mean, (loc.variance + noise) ** 0.5),
    )


def line(x, y=None):
    effects = numpyro.sample(
        "effects", dist.Normal(0.0, 1.0).expand([3]).to_event(1)
    )
    with numpyro.plate("rows", len(x)):
        numpyro.sample("obs", Sensor(x @ effects, 2.0), obs=y)


found = fit(line, DVIGuide(), x, y, method="lbfgs")
print(f"loss {found.loss:.1f}; {found.by_draws}")
predict(line, found, x[:3])["obs"].variance
