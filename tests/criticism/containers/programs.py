"""Programs that are converted to ArviZ's containers, in both hosts, with their exact answers."""

import jax
import numpy as np
import torch
from scipy import stats

from tests.fitting.models import HOSTS, fresh
from tests.response.models import doubles

__all__ = ["HOSTS", "doubles", "fresh"]

NOISE, ROWS = 0.5, 20
generator = np.random.default_rng(3)
X = generator.normal(size=(ROWS, 3))
Y = X @ [1.0, -2.0, 0.5] + NOISE * generator.normal(size=ROWS)


def line(host):
    """A regression of which the posterior is known."""

    def model(x, y=None):
        weight = host.weight()
        with host.language.plate("data", len(x)):
            mean = host.language.deterministic("mean", x @ weight)
            host.language.sample("obs", host.dist.Normal(mean, NOISE), obs=y)

    return model


def scaled(host):
    """A regression with unknown noise."""

    def model(x, y=None):
        weight = host.weight()
        scale = host.language.sample("scale", host.dist.HalfNormal(1.0))
        host.observe(x, host.dist.Normal(x @ weight, scale), y)

    return model


def local(host, part=None):
    """Effects of data in a plate of which the model takes a part."""

    def model(x, y=None):
        weight = host.weight()
        with host.language.plate("data", len(x), subsample_size=part) as rows:
            effect = host.language.sample("effect", host.dist.Normal(0.0, 1.0))
            given = None if y is None else y[rows]
            noise = host.dist.Normal(x[rows] @ weight + effect, NOISE)
            host.language.sample("obs", noise, obs=given)

    return model


def gaussian(x, y):
    """Mean and covariance of the posterior of ``line``."""
    covariance = np.linalg.inv(np.eye(x.shape[1]) + x.T @ x / NOISE**2)
    return covariance @ x.T @ y / NOISE**2, covariance


def left_out(x, y):
    """Exact log densities of each datum given the others."""
    found = []
    for row in range(len(x)):
        mean, covariance = gaussian(np.delete(x, row, 0), np.delete(y, row))
        variance = NOISE**2 + x[row] @ covariance @ x[row]
        found.append(stats.norm(x[row] @ mean, variance**0.5).logpdf(y[row]))
    return np.array(found)


def drawing(host, mean, covariance, log_scale=None):
    """A guide of known distribution: Gaussian weights, a lognormal scale."""

    def guide(*_, **__):  # whose arrays are of the precision of its call
        factor = host.array(np.linalg.cholesky(covariance))
        joint = host.dist.MultivariateNormal(host.array(mean), scale_tril=factor)
        host.language.sample("weight", joint)
        if log_scale is not None:
            loc, scale = map(host.array, map(np.asarray, log_scale))
            host.language.sample("scale", host.dist.LogNormal(loc, scale))

    return guide


def options_of(host, guide, params=None):
    """What only one host takes: the parameters of a guide."""
    is_guide = callable(guide) and host.name == "numpyro"
    return {"params": params or {}} if is_guide else {}


def convert(host, posterior, model, *data, **options):
    """The container of a host, with few draws."""
    options = {"num_samples": 50, "num_prior_samples": 20, **options}
    options |= options_of(host, posterior)
    arrays = [host.array(part) for part in data]
    return host.package.to_inference_data(model, posterior, *arrays, **options)


def seeded(host, number):
    """The option that makes other draws."""
    torch.manual_seed(number)
    return {"rng_key": jax.random.key(number)} if host.name == "numpyro" else {}
