"""Where the posterior is Gaussian, the corrected one is the posterior, whatever the guide."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer.autoguide import (
    AutoDelta,
    AutoDiagonalNormal,
    AutoGuideList,
    AutoMultivariateNormal,
    AutoNormal,
    AutoNormalMessenger,
)
from pyro.infer.reparam import LocScaleReparam

from pyro_moments import DeterministicELBO, DVIGuide, fit
from pyro_moments.fitting.evaluation_context import FixedParameters
from pyro_moments.fitting.parameters import Parameters
from pyro_moments.response.linear_response import linear_response
from tests.pyro.response.models import COUNTS, X, Y, counts, groups, regression

EXACT = torch.linalg.inv(X.T @ X / 0.25 + torch.eye(3).double() / 4)


def listed(model):
    guide = AutoGuideList(model)
    guide.append(AutoNormal(poutine.block(model, expose=["b"])))
    return guide


def written(model):
    """A guide by hand, whose parameters have names of their own."""

    def guide(x, y=None):
        loc = pyro.param("place", torch.zeros(3))
        scale = pyro.param("width", torch.full([3], 0.1), constraint=dist.constraints.positive)
        pyro.sample("b", dist.Normal(loc, scale).to_event(1))

    return guide


GUIDES = [DVIGuide, AutoNormal, AutoDiagonalNormal, AutoMultivariateNormal, AutoDelta]


@pytest.mark.parametrize("make", [*GUIDES, listed, written])
def test_covariance_of_a_linear_regression(make):
    pyro.clear_param_store()
    guide = make(regression)
    fit(regression, guide, X, Y, method="newton", float64=True)
    response = linear_response(regression, guide, X, Y)
    assert response.sites == {"b": (3,)}
    torch.testing.assert_close(response.covariance("b"), EXACT, rtol=0, atol=1e-10)
    expected = (X[:5] @ EXACT * X[:5]).sum(1)
    torch.testing.assert_close(response.moments("y", X[:5]).variance, expected)
    if make is not AutoDelta:  # of which certain values are all that the model sees
        torch.testing.assert_close(response.predict(X[:5])["y"].epistemic_variance, expected)


def test_what_a_reparameteriser_leaves_of_a_site_is_predicted():
    y = torch.tensor([2.0, 0, 1, 3]).double() + torch.arange(6).double()[:, None] / 5
    moved = poutine.reparam(groups, {"theta": LocScaleReparam(0.0)})
    responses = []
    for model in (groups, moved):
        pyro.clear_param_store()
        result = fit(model, DVIGuide(), y, method="newton", float64=True)
        responses.append(linear_response(model, result, y))
    expected = responses[0].covariance("theta").diagonal()
    torch.testing.assert_close(responses[1].predict(y)["theta"].variance, expected)


def test_hierarchies_by_mean_field_and_by_full_rank():
    y = torch.tensor([2.0, 0, 1, 3]).double() + torch.arange(6).double()[:, None] / 5
    found = []
    for make in (DVIGuide, AutoDiagonalNormal, AutoMultivariateNormal):
        pyro.clear_param_store()
        guide = make(groups)
        fit(groups, guide, y, method="newton", float64=True)
        response = linear_response(groups, guide, y)
        found.append(response.covariance())
        assert response.influence("mu").shape == (6, 4)
        if make is DVIGuide:  # the others do not tell what a group adds
            assert response.influence("mu", datum="groups").shape == (4,)
        sensitivity = response.prior_sensitivity("mu")
        assert {site: {*by} for site, by in sensitivity.items()} == {
            "mu": {"loc", "scale"},
            "theta": {"scale"},
        }
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=1e-10)
    torch.testing.assert_close(found[1], found[2], rtol=0, atol=1e-10)


def test_single_parameters_in_double_precision():
    pyro.clear_param_store()
    guide = DVIGuide()
    fit(regression, guide, X.float().double(), Y, method="newton", float64=True)
    for part in guide.parameters():
        part.data = part.data.float()
    response = linear_response(regression, guide, X, Y, float64=True)
    assert response.covariance().dtype is torch.float64
    assert {part.dtype for part in guide.parameters()} == {torch.float32}
    torch.testing.assert_close(response.covariance("b"), EXACT, rtol=1e-10, atol=1e-10)


def test_refusals():
    pyro.clear_param_store()
    guide = DVIGuide()
    result = fit(counts, guide, X, COUNTS, method="newton", float64=True)
    with pytest.raises(ValueError, match="not deterministic"):
        linear_response(counts, guide, X, COUNTS, objective=DeterministicELBO(sample_sites=["b"]))
    with pytest.raises(ValueError, match="runs the model itself"):
        linear_response(counts, AutoNormalMessenger(counts), X, COUNTS)
    with pytest.raises(ValueError, match="params has 'b'"):
        linear_response(counts, guide, X, COUNTS, params={"b": torch.zeros(3)})
    params = {name: value[:2] if value.dim() else value for name, value in result.params.items()}
    with pytest.raises(ValueError, match="has the shape"):
        linear_response(counts, guide, X, COUNTS, params=params)


def test_programs_without_parameters_have_a_context():
    fixed = FixedParameters(Parameters.from_run(lambda: None), {}, ())
    with fixed():
        assert fixed.as_tensor([1]).tolist() == [1.0]
    assert fixed.device == torch.empty(0).device
    assert not fixed.has_float64
    assert not fixed.vector.size
