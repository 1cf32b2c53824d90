"""A network in both hosts, with guides by dropout at the same locations."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import torch
from numpyro import handlers

from numpyro_moments.objectives.elbo import elbo_terms
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.traces import moment_traces
from tests.checks.jaxprs import by_numpy
from tests.fitting.models import started

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.sin(X[:, 0])
SCALE, PRIOR = 0.4, 1.3


def network(host: Any, x: Any, y: Any = None, prior: Any = None) -> None:
    """Two layers; the weight of the second is a vector."""
    fn = prior or (lambda host, shape: host.dist.Normal(0.0, PRIOR).expand(shape))

    def draw(name: str, *shape: int) -> Any:
        return host.language.sample(name, fn(host, shape).to_event(len(shape)))

    relu = torch.relu if host.name == "pyro" else jax.nn.relu
    h = relu(x @ draw("first", 3, 4) + draw("shift", 4))
    f = h @ draw("last", 4) + draw("level")
    host.observe(x, host.dist.Normal(f, SCALE), y)


def value_of(name: str, shape: Any) -> np.ndarray:
    return np.random.default_rng(len(name)).normal(size=tuple(shape)) + 0.1


def evaluated(host: Any, model: Any = network, **options: Any) -> tuple[dict, Any]:
    """The terms of the ELBO of a guide by dropout, and predictions."""
    bound, guide = partial(model, host), host.package.MCDropoutGuide(**options)
    evaluate = in_pyro if host.name == "pyro" else in_numpyro
    return evaluate(host, bound, guide, host.array(X), host.array(Y))


def in_pyro(host: Any, model: Any, guide: Any, *data: Any) -> tuple[dict, Any]:
    started(host, model, guide, *data)
    with torch.no_grad():
        for name, parameter in guide.locs.named_parameters():
            own = name.removesuffix("_unconstrained")
            parameter.copy_(torch.tensor(value_of(own, parameter.shape)))
    terms = host.package.DeterministicELBO().site_terms(model, guide, *data)
    return terms, host.package.predict(model, guide, data[0])["obs"]


def in_numpyro(host: Any, model: Any, guide: Any, *data: Any) -> tuple[dict, Any]:
    (params,) = started(host, model, guide, *data)
    params = {
        name: host.array(value_of(name.removesuffix("_auto_loc"), part.shape))
        if name.endswith("_loc")
        else part
        for name, part in params.items()
    }
    flow = host.package.DeterministicELBO().propagation

    def evaluate(params):
        traces = moment_traces(model, guide, data, {}, params, jax.random.key(0), flow)
        assert any(is_random(site["value"]) for site in traces.guide.values())
        with handlers.seed(rng_seed=0):
            terms = dict(elbo_terms(traces))
        found = host.package.predict(model, guide, params, data[0])["obs"]
        return terms, {"mean": found.mean, "epistemic_variance": found.epistemic_variance}

    terms, moments = by_numpy(evaluate)(params)
    return {name: float(term) for name, term in terms.items()}, SimpleNamespace(**moments)
