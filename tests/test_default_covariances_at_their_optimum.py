"""The default loss of each guide where training leads, beside draws of the guide, in both hosts."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes

from tests.fitting.models import fresh

ROWS, HIDDEN = 128, 10
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


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("name", ["pyro", "numpyro"])
def test_the_loss_is_that_of_draws(name, guide):
    """Within two per cent, and the error of a few hundred draws."""
    host = fresh(name)
    x, y = map(host.array, diabetes())
    made = getattr(host.package, guide)()
    fit = host.package.fit(network(host), made, x, y, steps=1000, progress_bar=False)
    found = fit.by_draws
    assert fit.losses[-1] < fit.losses[0] - 20
    assert abs(found.value - found.loss) < 0.02 * abs(found.loss) + 3 * found.standard_error
