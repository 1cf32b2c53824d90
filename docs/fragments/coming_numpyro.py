# %% model
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from sklearn.datasets import load_diabetes

data = load_diabetes(scaled=False)
x = (data.data - data.data.mean(0)) / data.data.std(0)
y = (data.target - data.target.mean()) / data.target.std()


def regression(x, y=None):
    weights = numpyro.sample(
        "weights", dist.Normal(0.0, 1.0).expand([10]).to_event(1)
    )
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("obs", dist.Normal(x @ weights, noise), obs=y)


# %% fit
from numpyro_moments import DVIGuide, fit, linear_response

result = fit(regression, DVIGuide(), x, y, method="newton", float64=True)
response = linear_response(regression, result, x, y)
# by site, as chains have them
draws = response.sample(1000, jax.random.key(0))
np.asarray(draws["weights"]).std(0).round(3)

# %% another guide
from numpyro.infer.autoguide import AutoNormal

guide = AutoNormal(regression)
other = fit(regression, guide, x, y, method="newton", float64=True)
print(f"{result.loss:.6f}, {other.loss:.6f}")

# %% network
import flax.linen as nn
from numpyro.contrib.module import random_flax_module

net = nn.Sequential([nn.Dense(20), nn.relu, nn.Dense(1)])


def network(x, y=None):
    prior = dist.Normal(0.0, 0.3)
    mean = random_flax_module("net", net, prior=prior, input_shape=(1, 10))(
        x
    )[..., 0]
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("obs", dist.Normal(mean, noise), obs=y)


print(fit(network, DVIGuide(), x, y, steps=1000, learning_rate=0.02).loss)
