"""The full-rank guides of both hosts with the same location and covariance."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer.autoguide as numpyro_guides
import pyro
import pyro.infer.autoguide as pyro_guides
import torch
from numpyro import handlers

import numpyro_moments
import pyro_moments
from tests.cases.hosts import models
from tests.checks.jaxprs import by_numpy

LOW_RANK, RANK = "AutoLowRankMultivariateNormal", 2


def posterior(size: int, seed: int = 1, spread: float = 0.4) -> dict[str, np.ndarray]:
    """Parameters of a low-rank Normal, its location and covariance."""
    random = np.random.default_rng(seed)
    factor, scale = random.normal(size=(size, RANK)), spread * np.ones(size)
    rows = factor * scale[:, None]
    return {
        "loc": 0.3 * random.normal(size=size),
        "cov_factor": factor,
        "scale": scale,
        "covariance": rows @ rows.T + np.diag(scale**2),
    }


def pyro_loss(
    model: Callable, kind: str, parts: dict[str, Any], *data: Any, **options: Any
) -> torch.Tensor:
    """Negative ELBO in Pyro, in double precision; options are those of the objective."""
    pyro.clear_param_store()
    model = partial(model, models.PYRO)
    tensors = [torch.tensor(array) for array in data]
    guide = getattr(pyro_guides, kind)(model, **_options(kind))
    guide(*tensors)
    if kind == LOW_RANK:
        values = {name: parts[name] for name in ("loc", "scale", "cov_factor")}
    else:
        tril = np.linalg.cholesky(parts["covariance"])
        values = {"loc": parts["loc"], "scale": np.diag(tril)}
        values["scale_tril"] = tril / np.diag(tril)[:, None]
    with torch.no_grad():
        for name, value in values.items():
            free = name in guide._parameters  # others go through their constraint
            setattr(
                guide,
                name,
                torch.nn.Parameter(torch.tensor(value)) if free else torch.tensor(value),
            )
    elbo = pyro_moments.DeterministicELBO(**options)
    return elbo.differentiable_loss(model, guide, *tensors)


def numpyro_loss(
    model: Callable, kind: str, parts: dict[str, Any], *data: Any, **options: Any
) -> jax.Array:
    """The same in NumPyro, whose guides arrange the sites by their names."""
    model = partial(model, models.NUMPYRO)
    guide = getattr(numpyro_guides, kind)(model, **_options(kind))
    if kind == LOW_RANK:
        values = {f"auto_{name}": parts[name] for name in ("loc", "scale", "cov_factor")}
    else:
        tril = np.linalg.cholesky(parts["covariance"])
        values = {"auto_loc": parts["loc"], "auto_scale_tril": tril}
    values = {name: jnp.asarray(value) for name, value in values.items()}
    elbo = numpyro_moments.DeterministicELBO(**options)
    arrays = list(map(jnp.asarray, data))

    @by_numpy
    def loss(values: dict[str, jax.Array]) -> jax.Array:
        with handlers.seed(rng_seed=0):
            guide(*arrays)  # makes the sites
        return elbo.loss(jax.random.key(0), values, model, guide, *arrays)

    return loss(values)


def _options(kind: str) -> dict[str, int]:
    return {"rank": RANK} if kind == LOW_RANK else {}


HOSTS = {"pyro": pyro_loss, "numpyro": numpyro_loss}
KINDS = ("AutoMultivariateNormal", LOW_RANK)
