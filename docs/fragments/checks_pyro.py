# %% model
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from sklearn.datasets import load_diabetes

data = load_diabetes(scaled=False)
x = (data.data - data.data.mean(0)) / data.data.std(0)
y = (data.target - data.target.mean()) / data.target.std()
train, test = np.arange(0, 442, 2), np.arange(1, 442, 2)
pyro.set_rng_seed(0)


def network(x, y=None):
    hidden = x
    for layer, shape in enumerate([(10, 10), (10, 10), (10, 10)]):
        weight = dist.Normal(0.0, 0.7).expand(shape).to_event(2)
        hidden = torch.relu(hidden @ pyro.sample(f"weight{layer}", weight))
    last = pyro.sample(
        "last", dist.Normal(0.0, 0.7).expand([10]).to_event(1)
    )
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(x)):
        return pyro.sample("obs", dist.Normal(hidden @ last, scale), obs=y)


# %% optimum
from pyro_moments import DVIGuide, fit

result = fit(
    network, DVIGuide(), x[train], y[train], method="lbfgs", float64=True
)
print(result.reason)
print(result.by_draws)

# %% accuracy
from pyro_moments import moment_accuracy

moment_accuracy(network, result, x[train])

# %% calibration
from pyro_moments import calibration, predict

prediction = predict(network, result, x[test])["obs"]
calibration(prediction, y[test])

# %% simulation
from pyro_moments import linear_response

random = np.random.default_rng(0)
pair = random.normal(size=(60, 1)) + 0.3 * random.normal(size=(60, 2))


def regression(x, y=None):
    weights = pyro.sample(
        "weights", dist.Normal(0.0, 1.0).expand([2]).to_event(1)
    )
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Normal(x @ weights, scale), obs=y)


simulations = 100
ranks = {"mean field": [], "linear response": []}
for _ in range(simulations):
    weights, scale = random.normal(size=2), random.lognormal(0.0, 0.5)
    data = pair, pair @ weights + scale * random.normal(size=60)
    found = fit(
        regression,
        DVIGuide(),
        *data,
        method="newton",
        float64=True,
        by_draws=False,
    )
    response = linear_response(regression, found, *data)
    draws = found.guide.sample_posterior(99), response.sample(99)
    for method, sites in zip(ranks, draws, strict=True):
        ranks[method].append(
            int((np.asarray(sites["weights"])[:, 0] < weights[0]).sum())
        )
for method, of_method in ranks.items():
    print(method, np.histogram(of_method, [0, 20, 40, 60, 80, 100])[0])
