"""Missing data: unknown values are assigned to places that are arguments of the model."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.response.models import doubles, fresh

RNG = np.random.default_rng(0)
X = RNG.normal(size=30)
Y = 1 + 2 * X + 0.5 * RNG.normal(size=30)
MISSING = np.array([3, 7, 20])
MASK = np.isin(np.arange(30), MISSING)
GIVEN = np.where(MASK, 0.0, X)


def assigned(host, x, where, unseen):
    """The array with unknown values at places, or where a mask is true."""
    return x.index_put((where,), unseen) if host.name == "pyro" else x.at[where].set(unseen)


def model_of(host):
    sample, dist = host.language.sample, host.dist

    def model(x, missing, y=None):
        line = sample("line", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        scale = sample("scale", dist.Exponential(1.0))
        unseen = sample("unseen", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        x = assigned(host, x, missing, unseen)
        with host.language.plate("rows", len(x)):
            return sample("y", dist.Normal(line[0] + line[1] * x, scale), obs=y)

    return model


@pytest.mark.parametrize("name", ["pyro", "numpyro"])
@pytest.mark.parametrize("missing", [MISSING, MASK], ids=["places", "mask"])
def test_places_are_arguments(name, missing):
    host = fresh(name)
    model = model_of(host)
    fixed = torch.as_tensor(missing) if name == "pyro" else jnp.asarray(missing)
    with doubles(host):
        data = host.array(GIVEN), host.array(Y)
        by_newton = {"method": "newton", "float64": True}
        fit, guide = host.package.fit, host.package.DVIGuide
        found = fit(model, guide(), data[0], missing, data[1], **by_newton)
        assert found.converged
        assert np.isfinite(found.by_draws.loss)
        closed = lambda x, y=None: model(x, fixed, y)  # noqa: E731
        quick = {"by_draws": False, "float64": True}
        same = fit(closed, guide(), *data, method="newton", **quick)
        np.testing.assert_allclose(found.loss, same.loss)
        few = fit(model, guide(), data[0], missing, data[1], steps=3, **quick)
        assert np.isfinite(few.losses).all()
        predicted = host.package.predict(model, found, GIVEN, missing)["y"]
        assert predicted.mean.shape == (30,)
