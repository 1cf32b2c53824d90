"""Covariances that front ends take by default, at any parameters and at the optimum."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions
import numpyro.handlers
import pyro
import pytest
import torch
from sklearn.datasets import load_diabetes

import numpyro_moments
import pyro_moments
from tests.checks.carried import loss_and_slopes
from tests.checks.jaxprs import by_numpy
from tests.checks.trained import decrease, loss_at, slopes, trained
from tests.fitting.models import HOSTS, fresh

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
NAMED = {"DVIGuide": "full", "TridiagonalGuide": "backward", "MCDropoutGuide": "backward"}


def model_of(host, relu, zeros):
    """A network 3-3-3-1."""
    normal = lambda *shape: host.distributions.Normal(zeros(shape), 1.0).to_event(len(shape))  # noqa: E731

    def model(x, y=None):
        hidden = relu(x @ host.sample("first", normal(3, 3)))
        hidden = relu(hidden @ host.sample("second", normal(3, 3)))
        mean = (hidden @ host.sample("last", normal(3, 1)))[..., 0]
        with host.plate("rows", len(x)):
            host.sample("y", host.distributions.Normal(mean, 0.5), obs=y)

    return model


def by_pyro(name, covariance):
    """Loss, and variances of predictions, of a guide at its start."""
    pyro.set_rng_seed(0)
    with pyro.settings.context(module_local_params=True):
        model, x = model_of(pyro, torch.relu, torch.zeros), torch.tensor(X)
        guide = getattr(pyro_moments, name)(model, init_scale=0.5)  # wide: covariances matter
        elbo = pyro_moments.DeterministicELBO(covariance=covariance)
        loss = elbo.loss(model, guide, x, torch.ones(5))
        found = pyro_moments.predict(model, guide, x, covariance=covariance)["y"].variance
    return loss, found.numpy()


def by_numpyro(name, covariance):
    """The same in NumPyro, whose SVI wraps the guide in a handler."""
    model, x = model_of(numpyro, jax.nn.relu, jnp.zeros), jnp.asarray(X.copy())
    guide = getattr(numpyro_moments, name)(model, init_scale=0.5)
    elbo = numpyro_moments.DeterministicELBO(covariance=covariance)
    svi = numpyro_moments.SVI(model, guide, numpyro.optim.Adam(0.01), elbo)
    begin = by_numpy(lambda key: svi.get_params(svi.init(key, x, jnp.ones(5))))
    params = begin(jax.random.key(0))
    seeded = numpyro.handlers.seed(guide, 0)

    @by_numpy
    def run(params):
        found = numpyro_moments.predict(model, guide, params, x, covariance=covariance)
        loss = elbo.loss(jax.random.key(0), params, model, seeded, x, jnp.ones(5))
        return loss, found["y"].variance

    loss, variance = run(params)
    return float(loss), np.asarray(variance)


@pytest.mark.parametrize("run", [by_pyro, by_numpyro], ids=["pyro", "numpyro"])
@pytest.mark.parametrize(("name", "named"), NAMED.items())
def test_guides_name_the_default(run, name, named):
    loss, variance = run(name, None)
    for covariance in ("full", "backward"):
        other, others = run(name, covariance)
        same = loss == other and np.array_equal(variance, others)
        assert same == (covariance == named), covariance


ROWS, HIDDEN, DRAWS, ROUNDS = 128, 10, 500, 20
RELU = {"pyro": torch.relu, "numpyro": jax.nn.relu}
GUIDES = "DVIGuide", "TridiagonalGuide", "MCDropoutGuide"


def diabetes():
    """The first rows, standardised."""
    inputs, outcomes = load_diabetes(return_X_y=True)
    inputs, outcomes = (part[:ROWS] for part in (inputs, outcomes))
    scaled = [(part - part.mean(0)) / part.std(0) for part in (inputs, outcomes)]
    return [part.astype(np.float32) for part in scaled]


def network(host):
    """10-10-1 with relu and a noise of 0.7."""

    def layer(name, x, outputs):
        prior = host.dist.Normal(0.0, 1.0).expand([x.shape[-1], outputs]).to_event(2)
        return x @ host.language.sample(name, prior)

    def model(x, y=None):
        hidden = RELU[host.name](layer("first", x, HIDDEN))
        mean = layer("last", hidden, 1)[..., 0]
        with host.language.plate("rows", len(x)):
            return host.language.sample("obs", host.dist.Normal(mean, 0.7), obs=y)

    return model


@functools.cache
def train():
    """Parameters of all guides, and the loss by draws with its standard error."""
    host, found = HOSTS["pyro"], {}
    data, model = [host.array(part) for part in diabetes()], network(host)
    for name in GUIDES:
        fresh("pyro")
        guide = getattr(host.package, name)()
        options = {"method": "lbfgs", "progress_bar": False, "by_draws": False}
        fit = host.package.fit(model, guide, *data, **options)
        assert fit.converged
        by_draws = host.package.DeterministicELBO(propagation="sampled", num_particles=DRAWS)
        with torch.no_grad():
            drawn = [by_draws.loss(model, guide, *data) for _ in range(ROUNDS)]
        found |= fit.params
        found[f"drawn {name}"] = np.mean(drawn)
        found[f"error {name}"] = np.std(drawn) / (ROUNDS - 1) ** 0.5
    return found


@pytest.mark.trained
@pytest.mark.parametrize("guide", GUIDES)
def test_the_loss_is_that_of_draws(host, guide):
    """Within a thousandth, and the error of the draws."""
    how = f"L-BFGS in Pyro until it has converged, seed 0; {DRAWS * ROUNDS} draws"
    stored = trained("default_covariances", how, train)
    params = {name: value for name, value in stored.items() if name.startswith(guide)}
    model, data = network(host), [host.array(part) for part in diabetes()]
    program = host.package.DeterministicELBO(), model, getattr(host.package, guide)(), params
    if host.name == "pyro":
        loss = loss_at(*program, *data)
        gradient, loss = slopes(loss), loss.item()
    else:
        loss, gradient = loss_and_slopes(*program, *data)
    assert gradient.keys() == params.keys()
    assert decrease(params, gradient) < 1e-3
    drawn, error = (float(stored[f"{part} {guide}"]) for part in ("drawn", "error"))
    assert abs(loss - drawn) < 0.001 * drawn + 3 * error
