# %% data
import numpy as np
from sklearn.datasets import load_diabetes

data = load_diabetes(scaled=False)
x = ((data.data - data.data.mean(0)) / data.data.std(0)).astype(np.float32)
y = ((data.target - data.target.mean()) / data.target.std()).astype(
    np.float32
)
rows = np.random.default_rng(0).permutation(len(y))
train, test = rows[:342], rows[342:]
print(x.shape)

# %% model
import pyro
import pyro.distributions as dist
import torch


def layer(name, x, outputs):
    shape = [x.shape[-1], outputs]
    weight = pyro.sample(
        f"{name}.weight", dist.Normal(0.0, 1.0).expand(shape).to_event(2)
    )
    bias = pyro.sample(
        f"{name}.bias", dist.Normal(0.0, 1.0).expand([outputs]).to_event(1)
    )
    return x @ weight + bias


def network(x, y=None):
    out = layer("last", torch.relu(layer("first", x, 10)), 1)[..., 0]
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Normal(out, scale), obs=y)


# %% fit
from pyro_moments import MCDropoutGuide, fit

steps = {"steps": 200, "learning_rate": 0.03}
result = fit(network, MCDropoutGuide(p=0.1), x[train], y[train], **steps)
print(f"loss {result.loss:.1f}; {result.by_draws}")

# %% predict
from pyro_moments import calibration, predict


def score(prediction):
    return float(np.mean(np.asarray(prediction.log_prob(y[test]))))


prediction = predict(network, result, x[test])["obs"]
print(f"test log score {score(prediction):.3f}")
share = np.asarray(prediction.epistemic_variance) / np.asarray(
    prediction.variance
)
print(f"the masks cause {share.mean():.0%} of the predictive variance")
calibration(prediction, y[test])

# %% masks beside it
drawn = predict(
    network, result, x[test], propagation="sampled", num_particles=2000
)["obs"]
ratio = np.sqrt(
    np.asarray(drawn.variance) / np.asarray(prediction.variance)
)
print(
    "standard deviations by 2000 masks, over those by moments: "
    f"{ratio.mean():.3f}"
)

# %% a network with dropout layers of its own
from torch import nn

from pyro_moments import Moments, propagate

yours = nn.Sequential(
    nn.Linear(10, 20), nn.ReLU(), nn.Dropout(0.2), nn.Linear(20, 1)
).train()
certain = Moments(
    torch.as_tensor(x[test]), variance=torch.zeros(len(test), 10)
)
moments = propagate(yours, certain)
with torch.no_grad():
    masks = torch.stack(
        [yours(torch.as_tensor(x[test])) for _ in range(4000)]
    )
ratio = masks.std(0) / moments.variance.detach().sqrt()
print(
    "standard deviations by 4000 masks, over those by moments: "
    f"{float(ratio.mean()):.3f}"
)

# %% alpha
from pyro_moments import BBAlphaELBO

energy = BBAlphaELBO(alpha=0.5)
found = fit(
    network,
    MCDropoutGuide(p=0.1),
    x[train],
    y[train],
    objective=energy,
    **steps,
)
print(
    f"test log score {score(predict(network, found, x[test])['obs']):.3f}"
)

# %% by masks
for alpha in (0.5, 1.0):
    energy = BBAlphaELBO(
        alpha=alpha, propagation="sampled", num_particles=10
    )
    found = fit(
        network,
        MCDropoutGuide(p=0.1),
        x[train],
        y[train],
        objective=energy,
        **steps,
    )
    prediction = predict(network, found, x[test])["obs"]
    print(f"α = {alpha}: test log score {score(prediction):.3f}")

# %% Rényi
from pyro_moments import DVIGuide, RenyiELBO

bound = RenyiELBO(alpha=0.5, num_particles=10)
renyi = fit(
    network, DVIGuide(), x[train], y[train], objective=bound, **steps
)
print(
    f"test log score {score(predict(network, renyi, x[test])['obs']):.3f}"
)
