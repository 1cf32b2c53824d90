# %% model
import numpy as np
import pyro
import pyro.distributions as dist
import torch

from pyro_moments import DVIGuide, fit

random = np.random.default_rng(0)
x = random.normal(size=(120, 3)).astype(np.float32)
y = random.poisson(np.exp(0.5 + x @ [0.5, -0.5, 0.0])).astype(np.float32)


def model(x, y=None):
    effects = pyro.sample(
        "effects", dist.Normal(0.0, 1.0).expand([3]).to_event(1)
    )
    level = pyro.sample("level", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample(
            "obs", dist.Poisson(torch.exp(x @ effects + level)), obs=y
        )


result = fit(model, DVIGuide(), x, y, method="newton", float64=True)

# %% steps by hand
from pyro_moments import SVI, DeterministicELBO

svi = SVI(model, DVIGuide(), DeterministicELBO())
losses = [
    svi.step(torch.as_tensor(x), torch.as_tensor(y)) for _ in range(200)
]
print(f"{losses[0]:.1f} → {losses[-1]:.1f}")

# %% replicated data
from pyro_moments import (
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
from pyro_moments import loo, loo_weights

print(loo(data).pareto_k_joint, dict(loo_weights(data).sizes))

# %% chains
from pyro.infer import MCMC, NUTS

from pyro_moments import init_to_fit

kernel = NUTS(model, init_strategy=init_to_fit(result))
chains = MCMC(
    kernel, num_samples=100, warmup_steps=50, disable_progbar=True
)
chains.run(torch.as_tensor(x), torch.as_tensor(y))
print(chains.get_samples()["effects"].mean(0).numpy().round(2))

# %% neighbours
from pyro_moments import TridiagonalGuide

correlated = TridiagonalGuide()
fit(model, correlated, x, y, steps=500)
correlated.summary()

# %% a prior that is learnt
from pyro_moments import EmpiricalBayesNormal


def shrunk(x, y=None):
    effects = pyro.sample("effects", EmpiricalBayesNormal([3]))
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Poisson(torch.exp(x @ effects)), obs=y)


print(f"loss {fit(shrunk, DVIGuide(), x, y, steps=500).loss:.1f}")

# %% weights that are off
from pyro import poutine
from pyro.nn import PyroSample
from pyro.nn.module import to_pyro_module_
from torch import nn

from pyro_moments import (
    Horseshoe,
    HorseshoeReparam,
    LogUniform,
    pruning_report,
    smaller_network,
)

net = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1))
to_pyro_module_(net)
for layer in (net[0], net[2]):
    layer.weight = PyroSample(
        LogUniform().expand(layer.weight.shape).to_event(2)
    )


def sparse(x, y=None):
    mean = net(x)[:, 0] + pyro.sample("level", Horseshoe(0.1))
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Normal(mean, 0.3), obs=y)


trained = fit(sparse, DVIGuide(init_scale=0.5), x, np.log1p(y), steps=500)
report = pruning_report(
    sparse, trained, x, np.log1p(y), sites=["0.weight", "2.weight"]
)
print(report)
print(smaller_network(net, report))
hierarchy = poutine.reparam(sparse, config={"level": HorseshoeReparam()})

# %% noise without a prior
from pyro_moments import VBPGuide


def network(x, y=None):
    first = pyro.sample(
        "first", dist.Normal(0.0, 0.3).expand([3, 20]).to_event(2)
    )
    last = pyro.sample(
        "last", dist.Normal(0.0, 0.3).expand([20, 1]).to_event(2)
    )
    sigma = pyro.param(
        "sigma", torch.tensor(1.0), constraint=dist.constraints.positive
    )
    with pyro.plate("rows", len(x)):
        mean = (torch.relu(x @ first) @ last)[:, 0]
        pyro.sample("obs", dist.Normal(mean, sigma), obs=y)


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
from pyro_moments import Moments, propagate

noisy = Moments(torch.zeros(3), covariance=0.1 * torch.eye(3))
moments = propagate(lambda z: torch.exp(z).sum(), noisy, covariance="full")
print(float(moments.mean), float(moments.variance))

# %% units that draw
from pyro_moments import units

noisy = Moments(torch.tensor([0.0, 1.0]), variance=torch.tensor([1.0, 4.0]))
for unit in (
    units.BernoulliLogistic(),
    units.StochasticBinary(),
    units.GumbelArgmax(),
):
    drawn = propagate(unit, noisy)
    print(
        unit, drawn.mean.numpy().round(3), drawn.variance.numpy().round(3)
    )

# %% statistics of the data
from torch import nn

from pyro_moments import (
    AnalyticNorm,
    initialise_from_statistics,
    propagate_statistics,
)

images = 0.3 + 0.9 * torch.randn(200, 1, 12, 12)
mean, variance = images.mean((0, 2, 3)), images.var((0, 2, 3))
net = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 4)
)
initialise_from_statistics(net, mean, variance)
print(f"standard deviation of the outputs: {net(images).std().item():.2f}")

normalised = nn.Sequential(nn.Conv2d(1, 8, 3), AnalyticNorm(8), nn.ReLU())
propagate_statistics(normalised, mean, variance)
print(f"of one image: {normalised[:2](images[:1]).std().item():.2f}")

# %% where a variance comes from
from pyro_moments import predict

prediction = predict(model, result, x, covariance="backward")["obs"]
print(prediction.attribution())

# %% a likelihood of your own
from pyro_moments import expected_log_prob, predict, predictive_moments


class Sensor(dist.Normal):
    """A measurement with a known error."""


@expected_log_prob(Sensor)
def expected(sensor, value):
    loc = sensor.loc.value
    at_mean = dist.Normal(loc.mean, sensor.scale).log_prob(value)
    return at_mean - 0.5 * loc.variance / sensor.scale**2


@predictive_moments(Sensor)
def predicted(sensor):
    loc = sensor.loc.value
    noise = sensor.scale**2 * torch.ones_like(loc.mean)
    return (
        loc.mean,
        loc.variance,
        noise,
        dist.Normal(loc.mean, (loc.variance + noise) ** 0.5),
    )


def line(x, y=None):
    effects = pyro.sample(
        "effects", dist.Normal(0.0, 1.0).expand([3]).to_event(1)
    )
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", Sensor(x @ effects, torch.tensor(2.0)), obs=y)


found = fit(line, DVIGuide(), x, y, method="lbfgs")
print(f"loss {found.loss:.1f}; {found.by_draws}")
predict(line, found, x[:3])["obs"].variance
