"""Ordinary models are accepted by both hosts, with equal losses at equal parameters."""

from __future__ import annotations

import math
from functools import partial
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
import pyro
import pytest
import torch
from numpyro import handlers

import numpyro_moments
import pyro_moments
from tests.cases.hosts import models
from tests.cases.hosts.full_rank import HOSTS, KINDS, posterior
from tests.cases.hosts.ordinary_models import CASES, DATA, FULL_RANK
from tests.checks.jaxprs import by_numpy
from tests.test_cross_framework import precision


def in_pyro(model, data):
    """The loss, with locations and scales that differ from component to component."""
    pyro.clear_param_store()
    guide = pyro_moments.DVIGuide()
    model, tensors = partial(model, models.PYRO), [torch.tensor(array) for array in data]
    elbo = pyro_moments.DeterministicELBO()
    elbo.loss(model, guide, *tensors)  # makes the parameters
    with torch.no_grad():
        for owner, values in ((guide.locs, location), (guide.scales, scale)):
            for name, _ in list(owner.named_parameters()):
                name = name.removesuffix("_unconstrained")
                setting = torch.tensor(values(name, getattr(owner, name).shape))
                if owner is guide.locs:
                    getattr(owner, name).copy_(setting)
                else:
                    setattr(owner, name, setting)
        return elbo.differentiable_loss(model, guide, *tensors).item()


def in_numpyro(model, data):
    model, arrays = partial(model, models.NUMPYRO), [jnp.asarray(array) for array in data]
    guide = numpyro_moments.DVIGuide(model)
    values = {}
    for name, shape in shapes(numpyro_moments.DVIGuide(model), arrays, "param").items():
        own, _, role = name.rpartition("_auto_")
        values[name] = jnp.asarray((location if role == "loc" else scale)(own, shape))
    elbo = numpyro_moments.DeterministicELBO()
    loss = lambda values: elbo.loss(jax.random.key(0), values, model, guide, *arrays)  # noqa: E731
    return by_numpy(loss)(values).item()


def shapes(program, arrays, kind):
    """Of the sites of a kind that are not observed; nothing is computed."""

    def values():
        run = handlers.trace(handlers.seed(program, 0)).get_trace(*arrays)
        return {
            name: site["value"]
            for name, site in run.items()
            if site["type"] == kind and not site.get("is_observed")
        }

    return {name: value.shape for name, value in jax.eval_shape(values).items()}


def location(name, shape):
    return np.random.default_rng(len(name)).normal(size=shape) * 0.3


def scale(name, shape):
    return 0.1 + 0.3 * np.random.default_rng(len(name) + 1).random(size=shape)


@pytest.mark.parametrize("name", CASES)
def test_mean_field(name):
    model, arguments = CASES[name]
    data = [DATA[argument] for argument in arguments.split()]
    with precision("float64"):
        ours, theirs = in_pyro(model, data), in_numpyro(model, data)
    assert np.isfinite(ours)
    assert ours == pytest.approx(theirs, rel=1e-6)


def sizes(model, data):
    """How many numbers the latent sites have, on the unconstrained space."""
    sites = shapes(partial(model, models.NUMPYRO), list(map(jnp.asarray, data)), "sample")
    return sum(math.prod(shape) for shape in sites.values())


@pytest.mark.parametrize(("name", "kind"), list(zip(FULL_RANK, cycle(KINDS), strict=False)))
def test_full_rank(name, kind):
    """All components alike: the hosts put the sites in different orders."""
    model, arguments = CASES[name]
    data = [DATA[argument] for argument in arguments.split()]
    parts = posterior(size := sizes(model, data))
    parts["loc"], parts["cov_factor"] = np.full(size, 0.1), np.ones((size, 2))
    rows = parts["cov_factor"] * parts["scale"][:, None]
    parts["covariance"] = rows @ rows.T + np.diag(parts["scale"] ** 2)
    with precision("float64"):
        losses = [loss(model, kind, parts, *data).item() for loss in HOSTS.values()]
    assert np.isfinite(losses[0])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
