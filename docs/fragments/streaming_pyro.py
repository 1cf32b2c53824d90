# %% data
import numpy as np

random = np.random.default_rng(0)
truth = np.array([0.5, 1.0, -1.0, 0.0])
x = np.column_stack([np.ones(3000), random.normal(size=(3000, 3))]).astype(
    np.float32
)
y = random.poisson(np.exp(x @ truth * 0.5)).astype(np.float32)
days = [slice(start, start + 500) for start in range(0, 3000, 500)]

# %% model
import pyro
import pyro.distributions as dist
import torch


def model(x, y=None):
    effects = pyro.sample(
        "effects", dist.Normal(0.0, 1.0).expand([4]).to_event(1)
    )
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Poisson(torch.exp(x @ effects)), obs=y)


# %% one day after the other
from pyro_moments import DVIGuide, fit


def mean_of(result):
    return np.asarray(result.guide.median()["effects"])


newton = {"method": "newton", "float64": True}
day, found = None, []
for rows in days:
    day = fit(model, DVIGuide(), x[rows], y[rows], prior=day, **newton)
    found.append(day)
    print(np.round(mean_of(day), 3))

# %% all at once
everything = fit(model, DVIGuide(), x, y, **newton)
print(np.round(mean_of(everything), 3))

# %% mini-batches
batches = fit(
    model, DVIGuide(), x, y, batch_size=250, epochs=60, learning_rate=0.02
)
print(np.round(mean_of(batches), 3))

# %% save
from pyro_moments import load, save

save("effects.safetensors", model, everything, x, y)

# %% load
from pyro_moments import predict

restored = load("effects.safetensors", model, DVIGuide(), x)
first = predict(model, everything, x[:4])["obs"].mean
again = predict(model, restored, x[:4])["obs"].mean
print(
    np.asarray(again), np.abs(np.asarray(again) - np.asarray(first)).max()
)

# %% another model is refused
from pyro_moments import StoredFileError


def other(x, y=None):
    effects = pyro.sample(
        "effects", dist.Normal(0.0, 2.0).expand([4]).to_event(1)
    )
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Poisson(torch.exp(x @ effects)), obs=y)


try:
    load("effects.safetensors", other, DVIGuide(), x)
except StoredFileError as error:
    print(error)

# %% interrupted
options = {
    "batch_size": 250,
    "checkpoint": "effects.checkpoint",
    "every": 100,
}


def interrupt(progress):
    return progress.step >= 300


fit(model, DVIGuide(), x, y, steps=600, callback=interrupt, **options)

# %% goes on
resumed = fit(model, DVIGuide(), x, y, steps=600, **options)
straight = fit(
    model, DVIGuide(), x, y, steps=600, batch_size=250, every=100
)
print(resumed.loss == straight.loss)
