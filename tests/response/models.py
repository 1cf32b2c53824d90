"""Models in both hosts, at parameters that were found elsewhere."""

import warnings

import jax
import numpy as np

from pyro_moments.fitting.parameters import double_precision
from tests.fitting.models import HOSTS, fresh
from tests.response.oracle import NOISE

__all__ = ["HOSTS", "doubles", "fresh", "generalised", "mean_field", "response"]


def doubles(host):
    """Double precision in a host."""
    return jax.enable_x64(True) if host.name == "numpyro" else double_precision()


def generalised(host, regression):
    """A regression of the oracle as a model of x and y."""
    dist = host.dist
    likelihoods = {
        "normal": lambda f: dist.Normal(f, NOISE),
        "poisson": lambda f: dist.Poisson(host.np.exp(f)),
        "bernoulli": lambda f: dist.Bernoulli(logits=f),
    }

    def model(x, y=None):
        prior = dist.Normal(host.array(regression.prior_loc), host.array(regression.prior_scale))
        weight = host.language.sample("weight", prior.to_event(1))
        host.language.deterministic("twice", 2 * weight)
        host.observe(x, likelihoods[regression.kind](x @ weight), y)

    return model


def mean_field(host, **sites):
    """Parameters of a DVIGuide by name, from location and scale of sites."""
    names = {"numpyro": "{0}_auto_{1}", "pyro": "DVIGuide.{1}s.{0}"}[host.name]
    return {
        names.format(site, part): host.array(np.asarray(value, float))
        for site, pair in sites.items()
        for part, value in zip(("loc", "scale"), pair, strict=True)
    }


def response(host, model, *data, sites, **options):
    """Linear response at locations and scales of sites, in double precision."""
    with doubles(host), warnings.catch_warnings():
        warnings.simplefilter("error")
        arrays = [host.array(part) for part in data]
        params = mean_field(host, **sites)
        guide = host.package.DVIGuide()
        return host.package.linear_response(model, guide, *arrays, params=params, **options)
