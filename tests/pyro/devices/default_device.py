"""What a user of ``torch.set_default_device`` does: no name of a device."""

import io
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch.nn import functional

import pyro_moments as package
from tests.pyro.devices.programs import flat

ELBO = package.DeterministicELBO
QUIET: dict[str, Any] = {"progress_bar": False, "by_draws": False}


def weight(name: str, *shape: int) -> torch.Tensor:
    return pyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))


def line(x, y=None):
    slope, scale = weight("slope"), pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x[:, 0] * slope, scale), obs=y)


def network(x, y=None):
    out = torch.relu(x @ weight("first", 2, 3)) @ weight("last", 3, 1)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(out[:, 0], 0.3), obs=y)


def lenet(x, y=None):
    features = torch.relu(functional.conv2d(x, weight("kernel", 2, 1, 3, 3)))
    pooled = functional.max_pool2d(features, 2).flatten(1)
    logits = torch.relu(pooled @ weight("first", 8, 4)) @ weight("last", 4, 3)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Categorical(logits=logits), obs=y)


def attention(x, y=None):
    parts = (x @ weight(name, 2, 2) for name in ("query", "key", "value"))
    mean = functional.scaled_dot_product_attention(*parts).mean(-2) @ weight("last", 2, 1)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(mean[:, 0], 0.3), obs=y)


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1.0, 1.0, 16).reshape(8, 2) ** 3
    return x, x.sum(1) + torch.sin(9 * x[:, 0])


def fitted(model: Callable = network, guide: Any = package.DVIGuide, **options: Any) -> Any:
    x, y = rows()
    return package.fit(model, guide(), x, y, **{"steps": 3, "seed": 0} | QUIET | options)


def predicted(model: Callable, result: Any, x: torch.Tensor, **options: Any) -> list[float]:
    found = package.predict(model, result, x, **options)["y"]
    assert found.mean.device.type == torch.get_default_device().type
    return flat(found.mean, found.variance, found.log_prob(torch.zeros(len(x))))


def trained(**options: Any) -> list[float]:
    result = fitted(**options)
    return [*result.losses, *predicted(options.get("model", network), result, rows()[0])]


def from_arrays() -> list[float]:
    x, y = (part.cpu().numpy() for part in rows())
    result = package.fit(network, package.DVIGuide(), x, y, steps=3, **QUIET)
    return [*result.losses, *predicted(network, result, x)]


def resumed() -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        options = {"batch_size": 4, "checkpoint": Path(folder) / "state", "every": 2}
        fitted(steps=4, **options)
        pyro.clear_param_store()
        return list(fitted(steps=8, **options).losses)


def at_optimum() -> list[float]:
    x, y = rows()
    result = fitted(line, method="newton", steps=100)
    corrected = package.linear_response(line, result, x, y)
    with redirect_stdout(io.StringIO()):
        package.diagnose(line, result, x, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trained.safetensors"
        package.save(path, line, result, x, y)
        loaded = package.load(path, line, package.DVIGuide(), x)
    return flat(corrected.covariance("slope")) + predicted(line, loaded, x)


def chains() -> list[float]:
    x, y = rows()
    options = {"num_warmup": 4, "num_samples": 4}
    found = package.compare_with_nuts(line, fitted(line), x, y, **options)
    assert all(np.isfinite(np.ravel(site.difference)).all() for site in found.sites)
    return []


def by_backward(model: Callable, x: torch.Tensor, y: torch.Tensor) -> list[float]:
    objective = ELBO(covariance="backward")
    result = package.fit(model, package.DVIGuide(), x, y, steps=2, objective=objective, **QUIET)
    return [*result.losses, *predicted(model, result, x, covariance="backward")]


def of_images() -> list[float]:
    x = torch.linspace(-1.0, 1.0, 4 * 36).reshape(4, 1, 6, 6)
    return by_backward(lenet, x, torch.arange(4) % 3)


def of_words() -> list[float]:
    x = torch.linspace(-1.0, 1.0, 4 * 6).reshape(4, 3, 2)
    return by_backward(attention, x, x.sum((1, 2)))


USES: dict[str, Callable[[], list[float]]] = {
    "adam": trained,
    "arrays": from_arrays,
    "lbfgs": lambda: trained(method="lbfgs"),
    "batches": lambda: trained(batch_size=4, kl_warm_up=2, epochs=2, steps=None),
    "checkpoint": resumed,
    "optimum": at_optimum,
    "chains of NUTS": chains,
    "masks": lambda: trained(guide=package.MCDropoutGuide),
    "tridiagonal": lambda: trained(guide=package.TridiagonalGuide),
    "draws": lambda: trained(objective=ELBO(propagation="sampled", num_particles=2)),
    "backward": of_images,
    "attention": of_words,
}


def used(use: str, device: Any) -> list[float]:
    """Return numbers of a use; both devices draw the CPU's numbers."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    torch.set_default_device(device)
    torch.set_default_dtype(torch.double if use == "optimum" else torch.float)
    try:
        return USES[use]()
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float)
