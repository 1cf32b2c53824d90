"""Sites of Pyro models may have the names of methods of ``nn.Module``."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_moments import DVIGuide, fit, linear_response


@pytest.mark.parametrize("name", ["half", "type", "training"])
def test_a_site_is_named_like_an_attribute_of_a_module(name):
    def model(y=None):
        value = pyro.sample(name, dist.Normal(0.0, 1.0))
        with pyro.plate("rows", 10):
            pyro.sample("y", dist.Normal(value, 1.0), obs=y)

    y = torch.linspace(0.0, 1.0, 10)
    result = fit(model, DVIGuide(), y, method="newton")
    assert result.converged
    assert float(result.guide.median()[name]) == pytest.approx(float(y.sum()) / 11, rel=1e-4)
    assert float(linear_response(model, result, y).standard_deviation(name)) == pytest.approx(
        11**-0.5, rel=1e-4
    )
