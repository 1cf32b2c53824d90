# %% posterior
import numpy as np
import pyro
import pyro.distributions as dist
import torch

from pyro_moments import nested

random = np.random.default_rng(0)
effect = random.normal(size=40)
y = random.poisson(np.exp(0.5 + 0.6 * effect[:, None]), size=(40, 3))
y = torch.tensor(y, dtype=torch.float)


def model(y):
    level = pyro.sample("level", dist.Normal(0.0, 2.0))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    with pyro.plate("groups", 40, dim=-2):
        group = pyro.sample("group", dist.Normal(level, spread))
        with pyro.plate("rows", 3, dim=-1):
            pyro.sample("obs", dist.Poisson(torch.exp(group)), obs=y)


posterior = nested(model, y)
print(posterior.marginal("spread").interval(0.9))
print(posterior.log_evidence, posterior.log_evidence_error)
print(posterior.summary())

# %% verbs
from pyro_moments import Nested, diagnose, predict

diagnosis = diagnose(model, posterior, y)
prediction = predict(model, posterior, y)["obs"]
print(prediction.mean[:2])
axes = posterior.plot(["spread", "level"])
posterior.save("counts.safetensors")
again = Nested.load("counts.safetensors", model, y)
