"""Sites on simplexes and LKJ priors under NumPyro's own guides."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import init_to_value
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal

from numpyro_moments import SVI, DeterministicELBO, DVIGuide, UnsupportedMoments
from tests.checks.jaxprs import by_numpy

Y = jnp.array([[0.3, -0.2], [1.1, 0.9], [-0.8, -1.5]])
CLASSES = jnp.array([0, 2, 1, 2])


def factor():
    root = numpyro.sample("site", dist.LKJCholesky(2, 1.5))
    with numpyro.plate("rows", 3):
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root), obs=Y)


def simplex():
    shares = numpyro.sample("site", dist.Dirichlet(jnp.array([1.0, 2.0, 1.5])))
    with numpyro.plate("rows", 4):
        numpyro.sample("y", dist.Categorical(shares), obs=CLASSES)


VALUES = {factor: jnp.eye(2), simplex: jnp.array([0.2, 0.5, 0.3])}


def loss(kind, model):
    begin = {"init_loc_fn": init_to_value(values={"site": VALUES[model]}), "init_scale": 0.3}
    svi = SVI(model, kind(model, **begin), DeterministicELBO())
    return float(by_numpy(lambda key: svi.evaluate(svi.init(key)))(jax.random.key(0)))


@pytest.mark.parametrize("model", VALUES)
def test_the_loss_is_that_of_our_own_guide(model):
    ours = loss(lambda model, **begin: DVIGuide(**begin), model)
    assert loss(AutoDiagonalNormal, model) == pytest.approx(ours, rel=1e-5)


def test_dependent_coordinates_are_refused_by_their_cause():
    with pytest.raises(
        UnsupportedMoments, match="coordinates of a simplex or of a Cholesky factor"
    ):
        loss(AutoMultivariateNormal, factor)
