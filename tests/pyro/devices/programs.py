"""Training on a device, and what is done with a fit.

Models say where their constants are. The random numbers of both devices are the CPU's.
"""

import io
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
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
        pyro.sample("y", dist.Normal(x @ line, scale), obs=y)


def turned(x, y=None):
    """Components are chosen by indices: flipped, repeated, by a list."""
    weight = pyro.sample("weight", dist.Normal(x.new_zeros(4), 1.0).to_event(1))
    chosen = weight.flip(0)[[0, 2]] + weight[:1].repeat(2)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ chosen, 1.0), obs=y)


def classifier(x, y=None):
    logits = network(torch.relu, 3)(x)
    classes = None if y is None else (y > 0).long() + (y > 0.5).long()
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Categorical(logits=logits), obs=classes)


ELBO, RELU = package.DeterministicELBO, gaussian(torch.relu)
CELLS: dict[str, tuple[Any, Any, Any]] = {
    **{name: (gaussian(f), package.DVIGuide, ELBO()) for name, f in ACTIVATIONS.items()},
    "regression": (regression, package.DVIGuide, ELBO()),
    "turned": (turned, package.DVIGuide, ELBO()),
    "classifier": (classifier, package.DVIGuide, ELBO()),
    "chain": (RELU, package.TridiagonalGuide, ELBO(covariance="full")),
    "chain, backward": (RELU, package.TridiagonalGuide, ELBO()),
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


def flat(*tensors):
    return [number for part in tensors for number in part.detach().cpu().flatten().tolist()]


def training(cell: str, device: Any) -> list[Any]:
    """The losses of some steps of Adam, and predictions after them."""
    model, guide, objective = CELLS[cell]
    x, y = data(device)
    svi = package.SVI(model, guide(), objective, pyro.optim.Adam({"lr": 0.05}))
    losses = [svi.step(x, y) for _ in range(STEPS)]
    assert {leaf.device for leaf in pyro.get_param_store().values()} == {x.device}
    found = package.predict(model, svi.guide, x)["y"]
    moments = [found.probs] if cell == "classifier" else [found.mean, found.variance]
    assert {part.device for part in moments} == {x.device}
    return losses + flat(*moments)


@cache
def fitted(device: Any) -> Any:
    """A regression at its optimum, by Newton's method."""
    return package.fit(regression, package.DVIGuide(), *data(device), method="newton")


def diagnosis(x, y, result):
    with redirect_stdout(io.StringIO()) as printed:
        package.diagnose(regression, result, x, y)
    lines = printed.getvalue().splitlines()
    return [line for line in lines if "loss by draws" not in line]  # which differ by device


def storage(x, y, result):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trained.safetensors"
        package.save(path, regression, result, x, y)
        loaded = package.load(path, regression, package.DVIGuide(), x)
    found = package.predict(regression, loaded, x)["y"]
    assert found.mean.device == x.device
    return flat(found.mean, found.variance)


def comparison(x, y, result):
    options = {"num_warmup": 5, "num_samples": 5}
    found = package.compare_with_nuts(regression, result, x, y, **options)
    return [float(number) for site in found.sites for number in np.ravel(site.difference)]


def used(verb: Callable, device: Any) -> list[Any]:
    """What is done with a fit that other verbs share."""
    return verb(*data(device), fitted(device))


RUNS: dict[str, Callable[[Any], list[Any]]] = {
    **{cell: partial(training, cell) for cell in CELLS},
    **{f.__name__: partial(used, f) for f in (diagnosis, storage, comparison)},
}


def results(run: str, device: Any) -> list[Any]:
    """Numbers, or lines of text."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    return RUNS[run](device)
