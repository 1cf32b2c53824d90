"""What cannot be drawn, or has no closed form: the cause and the remedy are those of the case."""

from __future__ import annotations

import numpy as np
import pytest

from moment_calculus.refusals.errors import UnsupportedMoments
from tests.fitting.models import HOSTS, fresh
from tests.propagation.losses import losses

X, Y = np.random.default_rng(0).normal(size=(4, 3)), np.zeros(4)


@pytest.fixture(params=HOSTS)
def host(request):
    return fresh(request.param)


def refused(host, objective, model, guide=None):
    with pytest.raises(UnsupportedMoments) as raised:
        losses(host, objective, model, {"weight": (X[0], X[0] ** 2)}, X, Y, guide=guide)
    return raised.value


def test_a_discrete_site_that_is_to_be_drawn(host):
    def latent():
        flag = host.language.sample("flag", host.dist.Bernoulli(host.array(0.3)))
        return host.weight() * flag

    def model(x, y):
        loc = x @ latent()
        with host.language.plate("data", len(x)):
            host.language.sample("obs", host.dist.Normal(loc, 1.0), obs=y)

    elbo = host.package.DeterministicELBO(propagation="sampled")
    refusal = refused(host, elbo, model, guide=lambda *_: latent())
    assert "latent site 'flag' is discrete (Bernoulli" in refusal.cause
    assert "sample_sites" not in str(refusal)


def test_correlations_that_diagonal_propagation_would_ignore(host):
    def guide(*_):
        host.language.sample(
            "weight", host.dist.MultivariateNormal(host.array(X[0]), identity(host))
        )

    energy = host.package.BBAlphaELBO(covariance="diagonal")
    refusal = refused(host, energy, host.regression, guide=guide)
    assert "would ignore its correlations" in refusal.cause
    assert "use covariance='full'" in refusal.remedy
    assert "DeterministicELBO" not in refusal.remedy


def identity(host):
    return host.array(np.eye(3))
