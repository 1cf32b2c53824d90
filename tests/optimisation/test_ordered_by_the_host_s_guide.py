"""Ordered sites of the hosts' own AutoNormal are those of DVIGuide."""

import functools

import numpy as np
import pytest

from tests.checks.carried import loss_and_newton_step
from tests.response.models import doubles, fresh

RNG = np.random.default_rng(0)
X = RNG.normal(size=40)
GRADES = np.digitize(X + RNG.logistic(size=40), [-0.5, 0.8])


def program(host, cuts):
    """Grades by cut points of an ordered site."""
    sample, dist = host.language.sample, host.dist
    ordered = dist.transforms.OrderedTransform()

    def model(x, grade=None):
        slope = sample("slope", dist.Normal(0.0, 1.0))
        base = dist.Normal(0.0, 1.5).expand([cuts]).to_event(1)
        cut = sample("cuts", dist.TransformedDistribution(base, [ordered]))
        with host.language.plate("rows", len(x)):
            return sample("grade", dist.OrderedLogistic(slope * x, cut), obs=grade)

    return model


@functools.cache
def fits(cuts):
    """Of both guides in Pyro."""
    host = fresh("pyro")
    model = program(host, cuts)
    options = {"method": "newton", "by_draws": False, "float64": True}
    with doubles(host):
        guides = host.autoguide.AutoNormal(model), host.package.DVIGuide()
        return [host.package.fit(model, guide, X, GRADES, **options) for guide in guides]


@pytest.mark.parametrize("cuts", [2, 3])
def test_both_guides_have_the_same_optimum(cuts):
    by_host, ours = fits(cuts)
    assert by_host.converged
    assert ours.converged
    np.testing.assert_allclose(by_host.loss, ours.loss, rtol=1e-8)


def test_numpyro_has_this_optimum_by_both_guides():
    fit, host = fits(3)[1], fresh("numpyro")
    model = program(host, 3)
    with doubles(host):
        data = host.array(X), host.array(GRADES)
        for guide in (host.autoguide.AutoNormal(model), host.package.DVIGuide()):
            elbo = host.package.DeterministicELBO()
            loss, decrease = loss_and_newton_step(elbo, model, guide, fit.params, *data)
            np.testing.assert_allclose(loss, fit.loss, rtol=1e-8)
            assert decrease < 1e-8
