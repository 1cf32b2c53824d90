"""The table of a linear response is of one space: the sites' supports, or the unconstrained one."""

import numpy as np
import pytest
from scipy import stats

from tests.checks.marks import IN_PYRO
from tests.response.models import doubles

Y = np.array([1.3, -0.4, 0.9, 2.2, 0.1, 1.7, -1.1, 0.6], np.float32)
COUNTS = np.array([5.0, 3.0, 4.0])


def numbers(table):
    """The columns of a table by row."""
    lines = table.splitlines()[1:]
    return {line.split()[0]: [float(part) for part in line.split()[1:]] for line in lines}


def located(host):
    """A location and a positive scale."""

    def model(y):
        loc = host.language.sample("loc", host.dist.Normal(0.0, 2.0))
        scale = host.language.sample("scale", host.dist.LogNormal(0.0, 1.0))
        host.observe(y, host.dist.Normal(loc, scale), y)

    return model


def response_of(host, model, *data):
    fit = host.fit(model, *data, method="newton", float64=True)
    return host.package.linear_response(model, fit, *data)


def test_the_table_is_of_the_supports(host):
    """The scale is log-normal: mean and deviations in closed form, inside of its own interval."""
    response = response_of(host, located(host), host.array(Y))
    loc, deviation = (
        float(part("scale")) for part in (response.location, response.standard_deviation)
    )
    found, plain = numbers(response.summary()), numbers(response.summary(unconstrained=True))
    scale, ends = stats.lognorm(deviation, scale=np.exp(loc)), stats.norm(loc, deviation)
    assert found["scale"][0] == pytest.approx(scale.mean(), rel=1e-3)
    assert found["scale"][2] == pytest.approx(scale.std(), rel=1e-3)
    assert found["scale"][4:] == pytest.approx(scale.interval(0.9), rel=1e-3)
    assert plain["scale"][:1] + plain["scale"][2:3] == pytest.approx([loc, deviation], rel=1e-3)
    assert plain["scale"][4:] == pytest.approx(ends.interval(0.9), rel=1e-3)
    assert found["loc"] == plain["loc"]


@IN_PYRO
def test_the_shares_of_a_simplex_have_a_table(host):
    """Beside the exact posterior, a Dirichlet; of draws that are always the same."""

    def model(observed):
        shares = host.language.sample("shares", host.dist.Dirichlet(host.array(np.full(3, 2.0))))
        host.language.sample("obs", host.dist.Multinomial(12, shares), obs=observed)

    name = {"numpyro": "shares_auto_loc", "pyro": "AutoDelta.shares"}[host.name]
    with doubles(host):
        guide, objective = host.autoguide.AutoDelta(model), host.language.infer.Trace_ELBO()
        response = host.package.linear_response(
            model,
            guide,
            host.array(COUNTS),
            params={name: host.array((COUNTS + 1) / (COUNTS + 1).sum())},
            objective=objective,
        )
    exact = stats.dirichlet(2 + COUNTS)
    found = numbers(response.summary())
    for share in range(3):
        mean, _, corrected, _, low, high = found[f"shares[{share}]"]
        assert mean == pytest.approx(exact.mean()[share], abs=0.02)
        assert corrected == pytest.approx(exact.var()[share] ** 0.5, rel=0.1)
        assert 0 < low < mean < high < 1
    assert response.summary() == response.summary()


def test_ordered_cut_points_are_corrected_by_their_coordinates(host):
    """Where data say nothing of them the posterior is the prior."""

    def model(y):
        normal = host.dist.Normal(0.0, 1.5).expand([3]).to_event(1)
        ordered = host.dist.TransformedDistribution(
            normal, [host.dist.transforms.OrderedTransform()]
        )
        host.language.sample("cuts", ordered)
        loc = host.language.sample("loc", host.dist.Normal(0.0, 2.0))
        host.observe(y, host.dist.Normal(loc, 1.0), y)

    with doubles(host):
        response = response_of(host, model, host.array(Y.astype(float)))
        np.testing.assert_allclose(response.location("cuts"), 0, atol=1e-6)
        np.testing.assert_allclose(response.standard_deviation("cuts"), 1.5, rtol=1e-6)
        values, density = response.weighted_draws(np.random.default_rng(0), 50)
        constant = response.problem.log_joint(values) - density
    assert (np.diff(np.asarray(values["cuts"])) > 0).all()
    np.testing.assert_allclose(constant, constant.mean(), atol=1e-6)
    found = numbers(response.summary())
    assert found["cuts[0]"][2] == pytest.approx(1.5, rel=0.05)
    assert found["cuts[1]"][0] == pytest.approx(np.exp(1.5**2 / 2), rel=0.2)
    with pytest.raises(ValueError, match="mixed on its support"):
        response.interval()
