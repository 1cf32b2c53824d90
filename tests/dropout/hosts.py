"""A network in both hosts, with guides by dropout at the same locations."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyro
import torch
from numpyro import handlers

import numpyro_moments
import pyro_moments
from numpyro_moments.objectives.elbo import elbo_terms
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.traces import moment_traces
from tests.cases.hosts import models
from tests.checks.jaxprs import by_numpy
from tests.fitting.models import HOSTS, started

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.sin(X[:, 0])
SCALE, PRIOR = 0.4, 1.3


def network(host: Any, x: Any, y: Any = None, prior: Any = None) -> None:
    """Two layers; the weight of the second is a vector."""
    fn = prior or (lambda host, shape: host.dist.Normal(0.0, PRIOR).expand(shape))

    def draw(name: str, *shape: int) -> Any:
        return host.sample(name, fn(host, shape).to_event(len(shape)))

    h = host.relu(x @ draw("first", 3, 4) + draw("shift", 4))
    f = h @ draw("last", 4) + draw("level")
    with host.plate("data", len(x)):
        host.sample("obs", host.dist.Normal(f, SCALE), obs=y)


def value_of(name: str, shape: Any) -> np.ndarray:
    return np.random.default_rng(len(name)).normal(size=tuple(shape)) + 0.1


def in_pyro(model: Any = network, elbo: Any = None, **options: Any) -> tuple[Any, dict, Any]:
    """The guide, the terms of its ELBO, and predictions."""
    pyro.clear_param_store()
    guide = pyro_moments.MCDropoutGuide(**options)
    elbo = elbo or pyro_moments.DeterministicELBO()
    bound = partial(model, models.PYRO)
    data = torch.tensor(X), torch.tensor(Y)
    elbo.loss(bound, guide, *data)
    with torch.no_grad():
        for name, parameter in guide.locs.named_parameters():
            own = name.removesuffix("_unconstrained")
            parameter.copy_(torch.tensor(value_of(own, parameter.shape)))
    terms = elbo.site_terms(bound, guide, *data)
    return guide, terms, pyro_moments.predict(bound, guide, data[0])["obs"]


def in_numpyro(model: Any = network, **options: Any) -> tuple[Any, dict, dict, Any]:
    """The guide, its parameters, the terms of its ELBO, and predictions."""
    guide = numpyro_moments.MCDropoutGuide(**options)
    elbo = numpyro_moments.DeterministicELBO()
    bound = partial(model, models.NUMPYRO)
    data = jnp.asarray(X), jnp.asarray(Y)
    (params,) = started(HOSTS["numpyro"], bound, guide, *data)
    params = {
        name: jnp.asarray(value_of(name.removesuffix("_auto_loc"), part.shape))
        if name.endswith("_loc")
        else part
        for name, part in params.items()
    }

    def evaluate(params):
        args = bound, guide, data, {}, params, jax.random.key(0), elbo.propagation
        traces = moment_traces(*args)
        assert any(is_random(site["value"]) for site in traces.guide.values())
        with handlers.seed(rng_seed=0):
            terms = dict(elbo_terms(traces))
        found = numpyro_moments.predict(bound, guide, params, data[0])["obs"]
        return terms, {"mean": found.mean, "epistemic_variance": found.epistemic_variance}

    terms, moments = by_numpy(evaluate)(params)
    terms = {name: float(term) for name, term in terms.items()}
    return guide, params, terms, SimpleNamespace(**moments)
