"""A regression in both hosts, with its data and trained parameters."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as numpyro_dist
import pyro
import pyro.distributions as pyro_dist
import torch

import numpyro_moments
import pyro_moments

ROWS = 96
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, 3)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=ROWS)).astype(np.float32)


class Host:
    """One of the hosts under the names of both.

    Args:
        name: of the front end.
        package: the front end.
        language: the host.
        dist: its distributions.
        array: makes an array.
    """

    def __init__(self, name, package, language, dist, array):
        self.name, self.package, self.array = name, package, array
        self.language, self.dist = language, dist
        self.x, self.y = array(X), array(Y)

    def regression(self, x, y=None):
        """Coefficients under a plate of the rows."""
        weight = self.weight()
        with self.language.plate("data", len(x)):
            return self.language.sample("obs", self.dist.Normal(x @ weight, 0.3), obs=y)

    def subsampled(self, x, y=None):
        """The same, scaled by the model itself."""
        weight = self.weight()
        with self.language.plate("data", ROWS, subsample_size=len(x)):
            return self.language.sample("obs", self.dist.Normal(x @ weight, 0.3), obs=y)

    def weight(self):
        prior = self.dist.Normal(0.0, 1.0).expand([3]).to_event(1)
        return self.language.sample("weight", prior)

    def fit(self, model, *data, **options):
        return self.package.fit(model, self.package.DVIGuide(), *data, **options)

    def location(self, fit):
        """Of the coefficients."""
        name = "weight_auto_loc" if self.name == "numpyro" else "DVIGuide.locs.weight"
        return np.asarray(fit.params[name])

    def rows(self, *indices):
        """Some of the data."""
        return self.x[slice(*indices)], self.y[slice(*indices)]


HOSTS = {
    "numpyro": Host("numpyro", numpyro_moments, numpyro, numpyro_dist, jnp.asarray),
    "pyro": Host("pyro", pyro_moments, pyro, pyro_dist, torch.tensor),
}


def fresh(name):
    """A host without parameters of an earlier test."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    return HOSTS[name]
