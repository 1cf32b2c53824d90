# %% data
import numpy as np
from sklearn.datasets import load_breast_cancer

data = load_breast_cancer()
rows = np.random.default_rng(0).permutation(len(data.target))
train, test = rows[:400], rows[400:]
x = (
    (data.data - data.data[train].mean(0)) / data.data[train].std(0)
).astype(np.float32)
y = data.target
print(x.shape, f"{y.mean():.0%} are benign")

# %% the network as it is
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

net = nn.Sequential([nn.Dense(16), nn.tanh, nn.Dense(2)])
adam, weights = optax.adam(0.01), net.init(jax.random.key(0), x[:1])


@jax.jit
def step(weights, state):
    def loss(weights):
        logits = net.apply(weights, x[train])
        return optax.softmax_cross_entropy_with_integer_labels(
            logits, y[train]
        ).mean()

    updates, state = adam.update(jax.grad(loss)(weights), state)
    return optax.apply_updates(weights, updates), state


state = adam.init(weights)
for _ in range(300):
    weights, state = step(weights, state)
plain = np.asarray(jax.nn.softmax(net.apply(weights, x[test])))

# %% scores
chosen = plain[np.arange(len(test)), y[test]]
accuracy = np.mean(plain.argmax(1) == y[test])
print(f"accuracy {accuracy:.3f}, log score {np.log(chosen).mean():.3f}")
print(f"least probability of an observed class {chosen.min():.1e}")

# %% priors on its weights
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.module import random_flax_module


def model(x, y=None):
    logits = random_flax_module(
        "net", net, prior=dist.Normal(0.0, 1.0), input_shape=(1, 30)
    )(x)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("obs", dist.Categorical(logits=logits), obs=y)


# %% fit from the trained weights
from numpyro.infer import init_to_value

from numpyro_moments import DVIGuide, calibration, fit, predict

trained = {
    f"net/{layer}.{name}": value
    for layer, parts in weights["params"].items()
    for name, value in parts.items()
}
guide = DVIGuide(init_loc_fn=init_to_value(values=trained))
result = fit(model, guide, x[train], y[train], steps=1000)
print(result)

# %% predict
prediction = predict(model, result, x[test])["obs"]
probabilities = np.asarray(prediction.probs)
chosen = probabilities[np.arange(len(test)), y[test]]
right = probabilities.argmax(1) == y[test]
print(f"accuracy {right.mean():.3f}, log score {np.log(chosen).mean():.3f}")
print(f"least probability of an observed class {chosen.min():.1e}")

# %% calibration
calibration(prediction, y[test])

# %% what is far away
far = 3 * np.random.default_rng(0).standard_normal((200, 30)).astype(
    np.float32
)
sure = jax.nn.softmax(net.apply(weights, far)).max(-1)
careful = np.asarray(predict(model, result, far)["obs"].probs).max(-1)
print(
    "probability of the likeliest class: "
    f"weights alone {float(sure.mean()):.2f}"
)
print(f"posterior {careful.mean():.2f}")

# %% the last layer alone
first = weights["params"]["layers_0"]
features = jnp.tanh(x @ first["kernel"] + first["bias"])


def last_layer(features, y=None):
    weight = numpyro.sample(
        "weight", dist.Normal(0.0, 0.25).expand([16, 2]).to_event(2)
    )
    bias = numpyro.sample(
        "bias", dist.Normal(0.0, 1.0).expand([2]).to_event(1)
    )
    logits = features @ weight + bias
    with numpyro.plate("rows", len(features)):
        numpyro.sample("obs", dist.Categorical(logits=logits), obs=y)


last = fit(last_layer, DVIGuide(), features[train], y[train], steps=1000)
probabilities = np.asarray(
    predict(last_layer, last, features[test])["obs"].probs
)
chosen = probabilities[np.arange(len(test)), y[test]]
print(f"log score {np.log(chosen).mean():.3f}")

# %% save
from numpyro_moments import load, save

save("network.safetensors", model, result, x[train], y[train])
restored = load("network.safetensors", model, DVIGuide(), x[train])
again = np.asarray(predict(model, restored, x[test])["obs"].probs)
print(np.abs(again - np.asarray(prediction.probs)).max())
