"""A regression and networks in both hosts, with their data and trained parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as numpyro_dist
import numpyro.infer.autoguide
import pyro
import pyro.distributions as pyro_dist
import pyro.infer.autoguide
import torch

import numpyro_moments
import pyro_moments
from tests.checks.jaxprs import by_numpy

IN_JAX = {"softsign": "soft_sign"}
ROWS = 96
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, 3)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=ROWS)).astype(np.float32)
INPUTS = rng.normal(size=(120, 2)).astype(np.float32)
CURVE = np.sin(2 * INPUTS[:, 0]) + INPUTS[:, 1]


class Host:
    """One of the hosts, its front end ``package``, and its names under those of both."""

    def __init__(self, name, package, language, dist, np, handlers):
        self.name, self.package, self.np, self.handlers = name, package, np, handlers
        self.language, self.dist, self.autoguide = language, dist, language.infer.autoguide
        self.array = np.tensor if name == "pyro" else np.asarray
        self.x, self.y = self.array(X), self.array(Y)

    def regression(self, x, y=None):
        """Coefficients under a plate of the rows."""
        return self.observe(x, self.dist.Normal(x @ self.weight(), 0.3), y)

    def subsampled(self, x, y=None):
        """The same, scaled by the model itself."""
        weight = self.weight()
        with self.language.plate("data", ROWS, subsample_size=len(x)):
            return self.language.sample("obs", self.dist.Normal(x @ weight, 0.3), obs=y)

    def observe(self, x, fn, y):
        """Rows of data under a plate."""
        with self.language.plate("data", len(x)):
            return self.language.sample("obs", fn, obs=y)

    def weight(self):
        prior = self.dist.Normal(0.0, 1.0).expand([3]).to_event(1)
        return self.language.sample("weight", prior)

    def fit(self, model, *data, **options):
        """A mean-field fit, without the check by draws, which would take most of the time."""
        options = {"by_draws": False, **options}
        return self.package.fit(model, self.package.DVIGuide(), *data, **options)

    def location(self, fit):
        """Of the coefficients."""
        name = "weight_auto_loc" if self.name == "numpyro" else "DVIGuide.locs.weight"
        return np.asarray(fit.params[name])

    def given(self, params):
        """What predict and save take before the data: the parameters, in NumPyro."""
        return (params,) if self.name == "numpyro" else ()

    def rows(self, *indices):
        """Some of the data."""
        return self.x[slice(*indices)], self.y[slice(*indices)]


HOSTS = {
    "numpyro": Host("numpyro", numpyro_moments, numpyro, numpyro_dist, jnp, numpyro.handlers),
    "pyro": Host("pyro", pyro_moments, pyro, pyro_dist, torch, pyro.poutine),
}


def fresh(name):
    """A host without parameters of an earlier test."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    return HOSTS[name]


def started(host, model, guide, *data, objective=None):
    """The guide's parameters after it met a model; an empty tuple where it keeps them."""
    svi = host.package.SVI(model, guide, objective or host.package.DeterministicELBO())
    if host.name == "numpyro":
        begin = by_numpy(lambda key: svi.get_params(svi.init(key, *data)))
        return (jax.tree.map(jnp.asarray, begin(jax.random.key(0))),)
    svi.evaluate_loss(*data)
    return ()


def network(host, family, outputs=(), layers=1, width=5, *, scale=1.0, unit="tanh"):
    """A network, and a likelihood of its outputs."""
    function = (
        getattr(torch.nn.functional, unit)
        if host.name == "pyro"
        else getattr(jax.nn, IN_JAX.get(unit, unit))
    )

    def model(x, y=None):
        value = x
        for layer in range(layers):
            value = function(value @ weight(f"w{layer}", value.shape[-1], width))
        out = value @ weight("out", value.shape[-1], *(outputs or (1,)))
        with host.language.plate("rows", len(x)):
            host.language.sample("obs", family(out if outputs else out[:, 0]), obs=y)

    def weight(name, *shape):
        prior = host.dist.Normal(0.0, scale / shape[0] ** 0.5).expand(shape).to_event(2)
        return host.language.sample(name, prior)

    return model


def trained(host, model, x, y, **options):
    """A fit to convergence."""
    data = host.array(x), host.array(y)
    options = {"method": "lbfgs", "progress_bar": False, "by_draws": True, **options}
    return host.fit(model, *data, **options)
