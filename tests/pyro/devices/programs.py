"""Training on a device, as numbers: ``python -m tests.pyro.devices.programs``.

Models say where their constants are. The random numbers of both devices are the CPU's.
"""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import autoguide

import pyro_moments as package

STEPS, POINTS = 3, 6
ACTIVATIONS = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "softplus": torch.nn.functional.softplus,
}


def layer(name, x, outputs):
    weight, bias = x.new_zeros(x.shape[-1], outputs), x.new_zeros(outputs)
    weight = pyro.sample(f"{name}.weight", dist.Normal(weight, 1.0).to_event(2))
    return x @ weight + pyro.sample(f"{name}.bias", dist.Normal(bias, 1.0).to_event(1))


def network(activation, outputs=2):
    return lambda x: layer("last", activation(layer("first", x, 3)), outputs)


def gaussian(activation):
    def model(x, y=None):
        out = network(activation)(x)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(out[..., 0], torch.exp(0.5 * out[..., 1])), obs=y)

    return model


def regression(x, y=None):
    line = pyro.sample("line", dist.Normal(x.new_zeros(2), 10.0).to_event(1))
    scale = pyro.sample("scale", dist.HalfNormal(x.new_ones(())))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(line[0] + line[1] * x[:, 0], scale), obs=y)


def classifier(x, y=None):
    logits = network(torch.relu, 3)(x)
    classes = None if y is None else (y > 0).long() + (y > 0.5).long()
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Categorical(logits=logits), obs=classes)


ELBO, RELU = package.DeterministicELBO, gaussian(torch.relu)
CELLS: dict[str, tuple[Any, Any, Any]] = {
    **{name: (gaussian(f), package.DVIGuide, ELBO()) for name, f in ACTIVATIONS.items()},
    "regression": (regression, package.DVIGuide, ELBO()),
    "classifier": (classifier, package.DVIGuide, ELBO()),
    "chain": (RELU, package.TridiagonalGuide, ELBO()),
    "dropout": (RELU, package.MCDropoutGuide, ELBO()),
    "full rank": (RELU, lambda: autoguide.AutoMultivariateNormal(RELU), ELBO()),
    "diagonal": (RELU, package.DVIGuide, ELBO(covariance="diagonal")),
    "sampled": (RELU, package.DVIGuide, ELBO(propagation="sampled", num_particles=3)),
    "energy": (RELU, package.DVIGuide, package.BBAlphaELBO(alpha=0.5)),
    "Rényi": (RELU, package.DVIGuide, package.RenyiELBO(alpha=0.5, num_particles=3)),
}


def data(device):
    x = torch.linspace(-1.0, 1.0, 2 * POINTS, dtype=torch.double).reshape(POINTS, 2)
    return x.to(device), torch.sin(2 * x[:, 0]).to(device)


def numbers(cell: str, device: Any) -> list[float]:
    """The losses of some steps of Adam, and predictions after them."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    model, guide, objective = CELLS[cell]
    x, y = data(device)
    svi = package.SVI(model, guide(), objective, pyro.optim.Adam({"lr": 0.05}))
    losses = [svi.step(x, y) for _ in range(STEPS)]
    places = {leaf.device for leaf in pyro.get_param_store().values()}
    assert places == {x.device}, f"parameters are on {places}"
    found = package.predict(model, svi.guide, x)["y"]
    moments = [found.probs] if cell == "classifier" else [found.mean, found.variance]
    assert {part.device for part in moments} == {x.device}
    return losses + [n for part in moments for n in part.detach().cpu().flatten().tolist()]
