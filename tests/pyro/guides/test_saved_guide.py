"""A guide that met no model yet takes saved parameters."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_moments import SVI, DeterministicELBO, DVIGuide, predict


def regression(x, y=None):
    weight = pyro.sample("layer.weight", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    noise = pyro.sample("noise", dist.Gamma(2.0, 2.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(x @ weight, noise), obs=y)


def after_training():
    x = torch.linspace(-1, 1, 10).reshape(5, 2)
    guide = DVIGuide()
    svi = SVI(regression, guide, DeterministicELBO())
    for _ in range(3):
        svi.step(x, x.sum(-1))
    return guide, x


def test_a_fresh_guide_takes_saved_parameters_and_predicts():
    guide, x = after_training()
    restored = DVIGuide()
    restored.load_state_dict(guide.state_dict())
    assert list(restored.parameters()) == []  # it has met no model
    ours, theirs = (predict(regression, g, x) for g in (restored, guide))
    assert ours.keys() == theirs.keys() == {"obs"}
    torch.testing.assert_close(ours["obs"].mean, theirs["obs"].mean)
    torch.testing.assert_close(restored.state_dict(), guide.state_dict())
    loss = DeterministicELBO().loss
    assert loss(regression, restored, x, x[:, 0]) == loss(regression, guide, x, x[:, 0])
    restored.load_state_dict({n: 0 * part for n, part in guide.state_dict().items()})
    assert all((part == 0).all() for part in restored.parameters())


def test_saved_parameters_of_another_model_are_refused():
    guide, x = after_training()
    restored = DVIGuide()
    restored.load_state_dict({**guide.state_dict(), "locs.other_unconstrained": torch.zeros(2)})
    with pytest.raises(RuntimeError, match=r"locs\.other_unconstrained"):
        DeterministicELBO().loss(regression, restored, x, x[:, 0])
