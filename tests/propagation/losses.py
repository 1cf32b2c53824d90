"""Losses of one model and one mean-field posterior, by any objective, in both hosts."""

from __future__ import annotations

import jax
import numpy as np
import pyro
import torch

from tests.checks.jaxprs import by_numpy
from tests.response.models import doubles, mean_field


def losses(host, objective, model, sites, *data, count=1, guide=None, params=None):
    """Losses in double precision, each with random numbers of its own.

    Args:
        host: the host.
        objective: of the host.
        model: the model.
        sites: locations and scales by site.
        *data: its arguments, arrays of NumPy.
        count: how many.
        guide: one of the package, or hand-written; by default a mean-field one.
        params: of the guide, if they are not those of the sites.
    """
    with doubles(host):
        arrays = [host.array(part) for part in data]
        params = params or mean_field(host, **sites)
        guide = guide or host.package.DVIGuide()
        of = _in_numpyro if host.name == "numpyro" else _in_pyro
        return of(objective, model, guide, params, arrays, count)


def _in_numpyro(objective, model, guide, params, arrays, count):
    def loss(key):
        return objective.loss(key, params, model, guide, *arrays)

    keys = jax.random.split(jax.random.key(3), count)
    return np.asarray(by_numpy(jax.vmap(loss))(keys) if count > 1 else [by_numpy(loss)(keys[0])])


def of_batches(host, objective, model, sites, *data, batches):
    """One loss of each mini-batch, in double precision.

    Args:
        host: the host.
        objective: of the host.
        model: the model.
        sites: locations and scales by site.
        *data: the arguments of the model, arrays of NumPy.
        batches: the rows of each, all so many.
    """
    if host.name == "pyro":
        parts = [[part[list(rows)] for part in data] for rows in batches]
        return np.array([losses(host, objective, model, sites, *batch)[0] for batch in parts])
    with doubles(host):
        params, guide = mean_field(host, **sites), host.package.DVIGuide()

        def loss(*batch):
            return objective.loss(jax.random.key(3), params, model, guide, *batch)

        return np.asarray(
            by_numpy(jax.vmap(loss))(*(host.array(part[np.array(batches)]) for part in data))
        )


def _in_pyro(objective, model, guide, params, arrays, count):
    if hasattr(guide, "bind"):
        guide.bind(model)
    with torch.no_grad():
        guide(*arrays)
    for name, value in params.items():
        pyro.get_param_store()[name] = value
    return np.array([objective.loss(model, guide, *arrays) for _ in range(count)])


def near(estimates, exact, errors=4.5):
    """Whether a mean of estimates is within so many of its standard errors."""
    error = np.std(estimates, ddof=1) / np.sqrt(len(estimates))
    return abs(np.mean(estimates) - exact) < errors * error
