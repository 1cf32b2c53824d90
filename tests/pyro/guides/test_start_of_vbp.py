"""VBPGuide starts as variance back-propagation does."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_moments import VBPGuide


def test_the_start_of_variance_back_propagation():
    def network(x):
        shapes = {"torch": [40, 50], "flax": [50, 40], "kernel": [30, 3, 5, 5], "bias": [40]}
        site = {
            name: pyro.sample(name, dist.Normal(1.0, 0.1).expand(shape).to_event(len(shape)))
            for name, shape in shapes.items()
        }
        hidden = torch.nn.functional.linear(x, site["torch"]) + x @ site["flax"] + site["bias"]
        return hidden, torch.nn.functional.conv2d(torch.ones(1, 3, 5, 5), site["kernel"])

    guide = VBPGuide(network)
    guide(torch.ones(2, 50))
    posterior = guide.get_posterior()
    for name, fan_in in {"torch": 50, "flax": 50, "kernel": 75}.items():
        assert posterior[name].mean.std().item() == pytest.approx(fan_in**-0.5, rel=0.06)
    assert (posterior["bias"].mean == 0).all()
    log_variances = 2 * posterior["torch"].stddev.log()
    assert log_variances.mean().item() == pytest.approx(-9, abs=1e-4)
    assert log_variances.std().item() == pytest.approx(1e-3, rel=0.06)
