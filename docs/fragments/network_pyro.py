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
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 2))
inputs, classes = torch.as_tensor(x), torch.as_tensor(y)
adam = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(300):
    adam.zero_grad()
    F.cross_entropy(net(inputs[train]), classes[train]).backward()
    adam.step()
with torch.no_grad():
    plain = net(inputs[test]).softmax(-1).numpy()

# %% scores
chosen = plain[np.arange(len(test)), y[test]]
accuracy = np.mean(plain.argmax(1) == y[test])
print(f"accuracy {accuracy:.3f}, log score {np.log(chosen).mean():.3f}")
print(f"least probability of an observed class {chosen.min():.1e}")

# %% priors on its weights
import pyro
import pyro.distributions as dist
from pyro.nn import PyroModule, PyroSample
from pyro.nn.module import to_pyro_module_

trained = {
    f"net.{name}": value.detach().clone()
    for name, value in net.named_parameters()
}
to_pyro_module_(net)
for layer in list(net.modules()):
    for name, value in list(layer.named_parameters(recurse=False)):
        prior = dist.Normal(0.0, 1.0)
        setattr(
            layer,
            name,
            PyroSample(prior.expand(value.shape).to_event(value.dim())),
        )


class Classifier(PyroModule):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y=None):
        logits = self.net(x)
        with pyro.plate("rows", len(x)):
            pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


# %% fit from the trained weights
from pyro.infer.autoguide import init_to_value

from pyro_moments import DVIGuide, calibration, fit, predict

model = Classifier(net)
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
with torch.no_grad():
    hidden = torch.tanh(
        F.linear(
            torch.as_tensor(far),
            trained["net.0.weight"],
            trained["net.0.bias"],
        )
    )
    sure = (
        F.linear(hidden, trained["net.2.weight"], trained["net.2.bias"])
        .softmax(-1)
        .amax(-1)
    )
careful = np.asarray(predict(model, result, far)["obs"].probs).max(-1)
print(
    "probability of the likeliest class: "
    f"weights alone {float(sure.mean()):.2f}"
)
print(f"posterior {careful.mean():.2f}")

# %% the last layer alone
first, activation = nn.Linear(30, 16), nn.Tanh()
with torch.no_grad():
    first.weight.copy_(trained["net.0.weight"])
    first.bias.copy_(trained["net.0.bias"])
    features = activation(first(inputs))


def last_layer(features, y=None):
    weight = pyro.sample(
        "weight", dist.Normal(0.0, 0.25).expand([16, 2]).to_event(2)
    )
    bias = pyro.sample(
        "bias", dist.Normal(0.0, 1.0).expand([2]).to_event(1)
    )
    logits = features @ weight + bias
    with pyro.plate("rows", len(features)):
        pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


last = fit(last_layer, DVIGuide(), features[train], y[train], steps=1000)
probabilities = np.asarray(
    predict(last_layer, last, features[test])["obs"].probs
)
chosen = probabilities[np.arange(len(test)), y[test]]
print(f"log score {np.log(chosen).mean():.3f}")

# %% save
from pyro_moments import load, save

save("network.safetensors", model, result, x[train], y[train])
restored = load("network.safetensors", model, DVIGuide(), x[train])
again = np.asarray(predict(model, restored, x[test])["obs"].probs)
print(np.abs(again - np.asarray(prediction.probs)).max())
