"""The default loss of each guide where training leads, beside draws of the guide, in both hosts."""

import functools

import jax
import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes

from tests.checks.carried import loss_and_slopes
from tests.checks.trained import decrease, loss_at, slopes, trained
from tests.fitting.models import HOSTS, fresh

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
