# %% model
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from sklearn.datasets import load_diabetes

pyro.set_rng_seed(0)
data = load_diabetes(scaled=False)
x = (data.data - data.data.mean(0)) / data.data.std(0)
y = (data.target - data.target.mean()) / data.target.std()


def regression(x, y=None):
    weights = pyro.sample(
        "weights", dist.Normal(0.0, 1.0).expand([10]).to_event(1)
    )
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Normal(x @ weights, noise), obs=y)


# %% fit
from pyro_moments import DVIGuide, fit, linear_response

result = fit(regression, DVIGuide(), x, y, method="newton", float64=True)
response = linear_response(regression, result, x, y)
draws = response.sample(1000)  # by site, as chains have them
np.asarray(draws["weights"]).std(0).round(3)

# %% another guide
from pyro.infer.autoguide import AutoNormal

guide = AutoNormal(regression)
other = fit(regression, guide, x, y, method="newton", float64=True)
print(f"{result.loss:.6f}, {other.loss:.6f}")

# %% network
from pyro.nn import PyroSample
from pyro.nn.module import to_pyro_module_
from torch import nn

net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
to_pyro_module_(net)
for layer in (net[0], net[2]):
    for name, value in list(layer.named_parameters()):
        prior = (
            dist.Normal(0.0, 0.3).expand(value.shape).to_event(value.dim())
        )
        setattr(layer, name, PyroSample(prior))


def network(x, y=None):
    mean = net(x)[..., 0]
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Normal(mean, noise), obs=y)


inputs, outputs = (torch.as_tensor(part).float() for part in (x, y))
print(
    fit(
        network, DVIGuide(), inputs, outputs, steps=1000, learning_rate=0.02
    ).loss
)
