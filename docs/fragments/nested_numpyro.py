# %% posterior
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from numpyro_moments import nested

random = np.random.default_rng(0)
effect = random.normal(size=40)
y = random.poisson(np.exp(0.5 + 0.6 * effect[:, None]), size=(40, 3))


def model(y):
    level = numpyro.sample("level", dist.Normal(0.0, 2.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 40, dim=-2):
        group = numpyro.sample("group", dist.Normal(level, spread))
        with numpyro.plate("rows", 3, dim=-1):
            numpyro.sample("obs", dist.Poisson(jnp.exp(group)), obs=y)


posterior = nested(model, y)
print(posterior.marginal("spread").interval(0.9))
print(posterior.log_evidence, posterior.log_evidence_error)
print(posterior.summary())

# %% verbs
from numpyro_moments import Nested, diagnose, predict

diagnosis = diagnose(model, posterior, y)
prediction = predict(model, posterior, y)["obs"]
print(prediction.mean[:2])
axes = posterior.plot(["spread", "level"])
posterior.save("counts.safetensors")
again = Nested.load("counts.safetensors", model, y)
