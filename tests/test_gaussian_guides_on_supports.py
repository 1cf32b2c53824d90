"""The Gaussian guide over factors of correlations, simplexes and scales: its loss by draws."""

from functools import partial

import jax
import numpy as np
import pytest
import torch
from numpyro.infer import Trace_ELBO

import numpyro_moments
import pyro_moments
from moment_guides.numpyro.gaussian import GaussianGuide as InNumPyro
from moment_guides.pyro.gaussian import GaussianGuide as InPyro
from tests.cases.hosts import models

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

RANDOM = np.random.default_rng(0)
GROUP = np.arange(12) % 4
X, Y = RANDOM.normal(size=12), RANDOM.normal(size=12)
DRAWS = 4000


def varying_slopes(host, group, x, y, size=2):
    dist = host.dist
    spread = host.sample("spread", dist.HalfNormal(1.0).expand([size]).to_event(1))
    factor = host.sample("factor", dist.LKJCholesky(size, 2.0))
    noise = host.sample("noise", dist.HalfNormal(1.0))
    with host.plate("groups", 4):
        mean = host.np.zeros(size)
        fn = dist.MultivariateNormal(mean, scale_tril=spread[..., None] * factor)
        effect = host.sample("effect", fn)
    predictor = effect[group, 0] + effect[group, size - 1] * x
    with host.plate("data", 12):
        host.sample("obs", dist.Normal(predictor, noise), obs=y)


def three_effects(host, group, x, y):
    varying_slopes(host, group, x, y, 3)


def slopes_not_centred(host, group, x, y, size=2, plates=False, columns=False):
    """Effects by a random factor times standard normal vectors, of groups or for groups."""
    dist = host.dist
    spread = host.sample("spread", dist.HalfNormal(1.0).expand([size]).to_event(1))
    factor = host.sample("factor", dist.LKJCholesky(size, 2.0))
    noise = host.sample("noise", dist.HalfNormal(1.0))
    mean = host.sample("mean", dist.Normal(0.0, 1.0))
    with host.plate("groups", 4):
        if plates:
            with host.plate("effects", size, dim=-2):
                effects = (spread[..., None] * factor) @ host.sample("z", dist.Normal(0.0, 1.0))
        else:
            z = host.sample("z", dist.Normal(0.0, 1.0).expand([size]).to_event(1))
            matrix = spread[..., None] * factor
            effects = (matrix @ z[..., None])[..., 0].T if columns else (z @ matrix.T).T
    predictor = mean + effects[0][group] + effects[size - 1][group] * x
    with host.plate("data", 12):
        host.sample("obs", dist.Normal(predictor, noise), obs=y)


def three_not_centred(host, group, x, y):
    slopes_not_centred(host, group, x, y, 3)


def of_columns(host, group, x, y):
    slopes_not_centred(host, group, x, y, columns=True)


def in_plates(host, group, x, y):
    slopes_not_centred(host, group, x, y, plates=True)


def local_level(host, group, x, y):
    """A walk, whose product of step and moves depends on the scale of the noise."""
    dist = host.dist
    step = host.sample("step", dist.HalfNormal(1.0))
    noise = host.sample("noise", dist.HalfNormal(1.0))
    z = host.sample("z", dist.Normal(0.0, 1.0).expand([12]).to_event(1))
    with host.plate("data", 12):
        host.sample("obs", dist.Normal(host.np.cumsum(step * z, -1), 2 * noise), obs=y)


def smooth_trend(host, group, x, y):
    """A trend of two walks and a regression, with a variance in the place of a scale."""
    dist = host.dist
    drift = host.sample("drift", dist.HalfNormal(0.5))
    step = host.sample("step", dist.HalfNormal(1.0))
    variance = host.sample("variance", dist.LogNormal(0.0, 0.5))
    weight = host.sample("weight", dist.Normal(0.0, 1.0))
    moves = host.sample("moves", dist.Normal(0.0, 1.0).expand([2, 12]).to_event(2))
    slope = host.np.cumsum(drift * moves[0], -1)
    level = host.np.cumsum(slope + step * moves[1], -1) + weight * x
    with host.plate("data", 12):
        host.sample("obs", dist.Normal(level, host.np.sqrt(variance)), obs=y)


def shares(host, group, x, y):
    """A mean of positive numbers by a simplex, and classes with its probabilities."""
    dist = host.dist
    share = host.sample("share", dist.Dirichlet(host.np.ones(4)))
    noise = host.sample("noise", dist.HalfNormal(1.0))
    level = host.sample("level", dist.Normal(0.0, 1.0))
    with host.plate("data", 12):
        host.sample("class", dist.Categorical(share), obs=group)
        host.sample("obs", dist.Normal(level + (share * host.np.exp(y[:4])).sum(-1), noise), obs=y)


def basis(host, group, x, y):
    """Weights by an amplitude and a decay that depends on a length, of which there are sums."""
    dist = host.dist
    noise = host.sample("noise", dist.HalfNormal(1.0))
    amplitude = host.sample("amplitude", dist.HalfNormal(1.0))
    length = host.sample("length", dist.LogNormal(-1.0, 0.5))
    z = host.sample("z", dist.Normal(0.0, 1.0).expand([12]).to_event(1))
    weights = amplitude * length**0.5 * host.np.exp(-0.25 * x**2 * length**2) * z
    with host.plate("data", 12):
        host.sample("obs", dist.Normal(host.np.cumsum(weights, -1), noise), obs=y)


def ordered_classes(host, group, x, y):
    """Weights of a regression that depend on the ordered cut points between its classes."""
    dist = host.dist
    weights = host.sample("weights", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    ordered = dist.transforms.OrderedTransform()
    normal = dist.Normal(host.np.zeros(3), 1.0).to_event(1)
    cuts = host.sample("cuts", dist.TransformedDistribution(normal, [ordered]))
    with host.plate("data", 12):
        predictor = host.np.stack([x, y], -1) @ weights
        host.sample("obs", dist.OrderedLogistic(predictor, cuts), obs=group)


def amplitudes(host, group, x, y):
    """Vectors by a random number times a certain factor, and times a certain covariance."""
    dist = host.dist
    height = host.sample("height", dist.HalfNormal(1.0))
    factor = host.np.eye(4) + host.np.tril(y[:4, None] * x[:4], -1)
    fn = dist.MultivariateNormal(host.np.zeros(4), scale_tril=height * factor)
    one = host.sample("one", fn)
    covariance = height**2 * (factor @ factor.T)
    fn = dist.MultivariateNormal(host.np.zeros(4), covariance_matrix=covariance)
    predictor = one + host.sample("other", fn)
    with host.plate("data", 12):
        host.sample("obs", dist.Normal(predictor[group], 0.5), obs=y)


def dependent(size, seed=3):
    """Elements below the diagonal of a factor."""
    return 0.5 * np.random.default_rng(seed).normal(size=size) / np.sqrt(size) ** 0.5


def in_numpyro(model):
    """The program, its guide, and parameters of dependent coordinates."""

    def program(*data):
        model(models.NUMPYRO, *data)

    guide = InNumPyro(init_scale=0.3)
    svi = numpyro_moments.SVI(program, guide, numpyro_moments.DeterministicELBO())
    init = jax.jit(lambda key: svi.get_params(svi.init(key, GROUP, X, Y)))  # one compilation
    params = dict(init(jax.random.key(0)))
    params["_auto_factor"] = jax.numpy.asarray(dependent(params["_auto_factor"].size))
    return program, guide, params


def loss_in_numpyro(guide, program, params):
    elbo = numpyro_moments.DeterministicELBO()
    return elbo.loss(jax.random.key(0), params, program, guide, GROUP, X, Y)


def in_pyro(model, params):
    """The loss at parameters of NumPyro's guide."""
    data = tuple(map(torch.as_tensor, (GROUP, X, Y)))

    def program(*data):
        model(models.PYRO, *data)

    guide, elbo = InPyro(init_scale=0.3), pyro_moments.DeterministicELBO()
    elbo.loss(program, guide, *data)
    with torch.no_grad():
        for site in guide._known_sites():
            for part, role in (("locs", "loc"), ("scales", "scale")):
                value = torch.tensor(np.asarray(params[f"{site.name}_auto_{role}"]))
                setattr(getattr(guide, part), site.name, value)
        guide.factor = torch.tensor(np.asarray(params["_auto_factor"]))
    return elbo.loss(program, guide, *data)


CASES = {
    varying_slopes: 0.0,
    three_effects: 0.0,
    slopes_not_centred: 0.0,
    three_not_centred: 0.0,
    of_columns: 0.0,
    in_plates: 0.0,
    local_level: 0.0,
    smooth_trend: 0.0,
    amplitudes: 0.0,
    basis: 0.0,
    shares: 0.01,  # nats by points, of the mean of the simplex
    ordered_classes: 0.02,  # cut points in sigmoids as Gaussians
}


@pytest.mark.parametrize("model", CASES)
def test_the_loss_is_that_of_draws_in_both_hosts(model):
    program, guide, params = in_numpyro(model)
    loss = jax.jit(partial(loss_in_numpyro, guide, program))(params)
    draw = lambda key: Trace_ELBO().loss(key, params, program, guide, GROUP, X, Y)  # noqa: E731
    drawn = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(1), DRAWS))
    error = float(drawn.std()) / DRAWS**0.5
    assert abs(float(loss) - float(drawn.mean())) < 4 * error + CASES[model]
    assert in_pyro(model, params) == pytest.approx(float(loss), rel=1e-9)


@pytest.mark.parametrize("model", [slopes_not_centred, smooth_trend, basis])
def test_gradients_are_those_of_finite_differences(model):
    program, guide, params = in_numpyro(model)
    generator = np.random.default_rng(5)
    direction = {name: generator.normal(size=np.shape(part)) for name, part in params.items()}

    @jax.jit
    @jax.value_and_grad
    def along(step):
        moved = {name: part + step * direction[name] for name, part in params.items()}
        return loss_in_numpyro(guide, program, moved)

    _, slope = along(0.0)
    expected = (along(1e-5)[0] - along(-1e-5)[0]) / 2e-5
    assert float(slope) == pytest.approx(float(expected), rel=1e-6)


def test_a_site_may_have_the_name_of_the_guide_s_factor():
    data = tuple(map(torch.as_tensor, (GROUP, X, Y)))

    def program(*data):
        varying_slopes(models.PYRO, *data)

    guide = InPyro(init_scale=0.3)
    quiet = {"by_draws": False, "progress_bar": False, "method": "newton"}
    pyro_moments.fit(program, guide, *data, steps=1, **quiet)
    assert guide.get_posterior().mean.shape == (guide.vector.size,)
