"""Ordered sites of the hosts' own AutoNormal are those of DVIGuide."""

from __future__ import annotations

import numpy as np
import pytest

from tests.response.models import doubles, fresh

RNG = np.random.default_rng(0)
X = RNG.normal(size=40)
GRADES = np.digitize(X + RNG.logistic(size=40), [-0.5, 0.8])


@pytest.mark.parametrize(("cuts", "name"), [(2, "pyro"), (3, "pyro"), (3, "numpyro")])
def test_both_guides_have_the_same_optimum(name, cuts):
    host = fresh(name)
    sample, dist = host.language.sample, host.dist
    ordered = dist.transforms.OrderedTransform()

    def model(x, grade=None):
        slope = sample("slope", dist.Normal(0.0, 1.0))
        base = dist.Normal(0.0, 1.5).expand([cuts]).to_event(1)
        cut = sample("cuts", dist.TransformedDistribution(base, [ordered]))
        with host.language.plate("rows", len(x)):
            return sample("grade", dist.OrderedLogistic(slope * x, cut), obs=grade)

    with doubles(host):
        options = {"method": "newton", "by_draws": False, "float64": True}
        guides = host.autoguide.AutoNormal(model), host.package.DVIGuide()
        fits = [host.package.fit(model, guide, X, GRADES, **options) for guide in guides]
        assert all(fit.converged for fit in fits)
        np.testing.assert_allclose(fits[0].loss, fits[1].loss, rtol=1e-8)
