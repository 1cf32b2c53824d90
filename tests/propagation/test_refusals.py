"""What cannot be drawn, or has a closed form or none: cause and remedy are those of the case."""

from __future__ import annotations

import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments
from tests.propagation.losses import losses
from tests.propagation.oracle import divergence, energy

X, Y = np.random.default_rng(0).normal(size=(4, 3)), np.zeros(4)


def of_rows(alpha, weight, x, y):
    """The energy of one observation model of which each row is one datum of several elements."""
    loc, scale = weight
    covariance = (x * scale**2) @ np.swapaxes(x, -1, -2)
    return sum(energy(alpha, *datum, 1.0) for datum in zip(y, x @ loc, covariance, strict=True))


def test_rows_times_a_vector_are_one_vector(host):
    """x @ w is w @ xᵀ: the dependence of its elements is known."""
    x, y = np.random.default_rng(1).normal(size=(3, 2, 3)), np.ones((3, 2))
    weight = X[0], X[1] ** 2

    def model(x, y):
        loc, plate = 0.5 * (x @ host.weight()), host.language.plate
        with plate("rows", 3, dim=-2), plate("each", 2, dim=-1):
            host.language.sample("obs", host.dist.Normal(loc, 1.0), obs=y)

    objective = host.package.BBAlphaELBO(0.5, datum="rows")
    found = losses(host, objective, model, {"weight": weight}, x, y)[0]
    exact = divergence(*weight) - of_rows(0.5, weight, 0.5 * x, y)
    assert found == pytest.approx(exact, rel=1e-10)


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
            "weight", host.dist.MultivariateNormal(host.array(X[0]), host.array(np.eye(3)))
        )

    energy = host.package.BBAlphaELBO(covariance="diagonal")
    refusal = refused(host, energy, host.regression, guide=guide)
    assert "would ignore its correlations" in refusal.cause
    assert "use covariance='full'" in refusal.remedy
    assert "DeterministicELBO" not in refusal.remedy
