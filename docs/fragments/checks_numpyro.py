# %% model
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from sklearn.datasets import load_diabetes

data = load_diabetes(scaled=False)
x = (data.data - data.data.mean(0)) / data.data.std(0)
y = (data.target - data.target.mean()) / data.target.std()
train, test = np.arange(0, 442, 2), np.arange(1, 442, 2)


def network(x, y=None):
    hidden = x
    for layer, shape in enumerate([(10, 10), (10, 10), (10, 10)]):
        weight = dist.Normal(0.0, 0.7).expand(shape).to_event(2)
        hidden = jax.nn.relu(
            hidden @ numpyro.sample(f"weight{layer}", weight)
        )
    last = numpyro.sample(
        "last", dist.Normal(0.0, 0.7).expand([10]).to_event(1)
    )
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(x)):
        return numpyro.sample(
            "obs", dist.Normal(hidden @ last, scale), obs=y
        )


# %% optimum
from numpyro_moments import DVIGuide, fit

result = fit(
    network, DVIGuide(), x[train], y[train], method="lbfgs", float64=True
)
print(result.reason)
print(result.by_draws)

# %% accuracy
from numpyro_moments import moment_accuracy

moment_accuracy(network, result, x[train])

# %% calibration
from numpyro_moments import calibration, predict

prediction = predict(network, result, x[test])["obs"]
calibration(prediction, y[test])

# %% simulation
from numpyro_moments import linear_response

random = np.random.default_rng(0)
pair = random.normal(size=(60, 1)) + 0.3 * random.normal(size=(60, 2))


def regression(x, y=None):
    weights = numpyro.sample(
        "weights", dist.Normal(0.0, 1.0).expand([2]).to_event(1)
    )
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("obs", dist.Normal(x @ weights, scale), obs=y)


simulations = 100
ranks = {"mean field": [], "linear response": []}
for key in jax.random.split(jax.random.key(0), simulations):
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
    mean_field = found.guide.sample_posterior(
        key, found.params, sample_shape=(99,)
    )
    draws = mean_field, response.sample(99, key)
    for method, sites in zip(ranks, draws, strict=True):
        ranks[method].append(
            int((np.asarray(sites["weights"])[:, 0] < weights[0]).sum())
        )
for method, of_method in ranks.items():
    print(method, np.histogram(of_method, [0, 20, 40, 60, 80, 100])[0])
