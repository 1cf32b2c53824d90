"""Sites on simplexes, ordered vectors and LKJ priors under Pyro's own mean-field guides."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal, AutoNormal
from pyro.infer.autoguide.initialization import init_to_value

from pyro_moments import DeterministicELBO, DVIGuide, UnsupportedMoments

Y = torch.tensor([[0.3, -0.2], [1.1, 0.9], [-0.8, -1.5]])
CLASSES = torch.tensor([0, 2, 1, 2])


def factor():
    root = pyro.sample("site", dist.LKJCholesky(2, 1.5))
    scale = pyro.sample("scale", dist.HalfNormal(torch.ones(2)).to_event(1))
    with pyro.plate("rows", 3):
        covariance = dist.MultivariateNormal(torch.zeros(2), scale_tril=scale[..., None] * root)
        pyro.sample("y", covariance, obs=Y)


def larger_factor():
    root = pyro.sample("site", dist.LKJCholesky(3, 1.5))
    with pyro.plate("rows", 3):
        y = torch.cat([Y, Y[:, :1]], -1)
        pyro.sample("y", dist.MultivariateNormal(torch.zeros(3), scale_tril=root), obs=y)


def simplex():
    shares = pyro.sample("site", dist.Dirichlet(torch.tensor([1.0, 2.0, 1.5])))
    with pyro.plate("rows", 4):
        pyro.sample("y", dist.Categorical(shares), obs=CLASSES)


def ordered():
    normal = dist.Normal(torch.zeros(2), 1.5).to_event(1)
    fn = dist.TransformedDistribution(normal, [dist.transforms.OrderedTransform()])
    cuts = pyro.sample("site", fn)
    with pyro.plate("rows", 4):
        pyro.sample("y", dist.OrderedLogistic(torch.zeros(4), cuts), obs=CLASSES)


VALUES = {
    factor: {"site": torch.tensor([[1.0, 0.0], [0.6, 0.8]]), "scale": torch.tensor([0.7, 1.2])},
    larger_factor: {"site": torch.eye(3)},
    simplex: {"site": torch.tensor([0.2, 0.5, 0.3])},
    ordered: {"site": torch.tensor([-0.5, 0.9])},
}


def loss(kind, model):
    pyro.clear_param_store()
    begin = {"init_loc_fn": init_to_value(values=VALUES[model]), "init_scale": 0.3}
    guide = kind(**begin) if kind is DVIGuide else kind(model, **begin)
    return DeterministicELBO().loss(model, guide)


@pytest.mark.parametrize("kind", [AutoNormal, AutoDiagonalNormal])
@pytest.mark.parametrize("model", VALUES)
def test_the_loss_is_that_of_our_own_guide(model, kind):
    assert loss(kind, model) == pytest.approx(loss(DVIGuide, model), rel=1e-5)


@pytest.mark.parametrize("model", [factor, larger_factor])
def test_dependent_coordinates_are_refused_by_their_cause(model):
    with pytest.raises(
        UnsupportedMoments, match="coordinates of a simplex or of a Cholesky factor"
    ):
        loss(AutoMultivariateNormal, model)
