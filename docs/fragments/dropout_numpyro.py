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
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def layer(name, x, outputs):
    shape = [x.shape[-1], outputs]
    weight = numpyro.sample(
        f"{name}.weight", dist.Normal(0.0, 1.0).expand(shape).to_event(2)
    )
    bias = numpyro.sample(
        f"{name}.bias", dist.Normal(0.0, 1.0).expand([outputs]).to_event(1)
    )
    return x @ weight + bias


def network(x, y=None):
    out = layer("last", jax.nn.relu(layer("first", x, 10)), 1)[..., 0]
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("obs", dist.Normal(out, scale), obs=y)


# %% fit
from numpyro_moments import MCDropoutGuide, fit

steps = {"steps": 200, "learning_rate": 0.03}
result = fit(network, MCDropoutGuide(p=0.1), x[train], y[train], **steps)
print(f"loss {result.loss:.1f}; {result.by_draws}")

# %% predict
from numpyro_moments import calibration, predict


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
    network,
    result,
    x[test],
    propagation="sampled",
    num_particles=2000,
    rng_key=jax.random.key(0),
)["obs"]
ratio = np.sqrt(
    np.asarray(drawn.variance) / np.asarray(prediction.variance)
)
print(
    "standard deviations by 2000 masks, over those by moments: "
    f"{ratio.mean():.3f}"
)

# %% a network with dropout layers of its own
import flax.linen as nn
from numpyro.contrib.module import flax_module

yours = nn.Sequential(
    [
        nn.Dense(20),
        nn.relu,
        nn.Dropout(0.2, deterministic=False),
        nn.Dense(1),
    ]
)
keys = jax.random.split(jax.random.key(1), 4000)
weights = yours.init({"params": keys[0], "dropout": keys[1]}, x[:1])


def outputs(x):
    net = flax_module(
        "net", yours, input_shape=(1, 10), apply_rng=["dropout"]
    )
    numpyro.deterministic(
        "out", net(x, rngs={"dropout": numpyro.prng_key()})
    )


def nothing(x):
    """The guide of a model without latent sites."""


moments = predict(
    outputs, nothing, {"net$params": weights["params"]}, x[test]
)["out"]
masks = jax.vmap(
    lambda key: yours.apply(weights, x[test], rngs={"dropout": key})
)(keys)
ratio = masks.std(0) / jnp.sqrt(moments.variance)
print(
    "standard deviations by 4000 masks, over those by moments: "
    f"{float(ratio.mean()):.3f}"
)

# %% alpha
from numpyro_moments import BBAlphaELBO

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
from numpyro_moments import DVIGuide, RenyiELBO

bound = RenyiELBO(alpha=0.5, num_particles=10)
renyi = fit(
    network, DVIGuide(), x[train], y[train], objective=bound, **steps
)
print(
    f"test log score {score(predict(network, renyi, x[test])['obs']):.3f}"
)
