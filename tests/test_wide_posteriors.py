"""Posteriors of which moments leave the range of the dtype, in both hosts: infinite, not NaN."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy import stats

import numpyro_moments
import pyro_moments
from tests.cases.hosts import models
from tests.cases.hosts.full_rank import HOSTS, KINDS, posterior
from tests.checks.jaxprs import by_numpy
from tests.golden import losses
from tests.propagation.oracle import placed
from tests.response.models import mean_field

PRIORS = {
    "Gamma": (2.0, 1.0),
    "InverseGamma": (2.0, 1.0),
    "Exponential": (1.0,),
    "HalfNormal": (1.0,),
    "HalfCauchy": (1.0,),
    "Weibull": (1.0, 2.0),
    "LogNormal": (0.0, 1.0),
    "Beta": (2.0, 2.0),
    "Uniform": (0.0, 1.0),
}
LOCATION = 0.2


def site(host, prior, observed):
    """A model of one positive or bounded site."""

    def model():
        s = host.language.sample("s", getattr(host.dist, prior)(*PRIORS[prior]))
        if observed:
            host.language.sample("y", host.dist.Normal(0.0, s), obs=host.np.ones(()))

    return model


def loss_and_gradients(host, model, scale):
    """In single precision, at a location and a scale of the only site."""
    elbo = host.package.DeterministicELBO()
    return (in_pyro if host.name == "pyro" else in_numpyro)(elbo, model, scale)


def in_pyro(elbo, model, scale):
    guide = pyro_moments.DVIGuide(init_scale=scale)
    elbo.differentiable_loss(model, guide)
    with torch.no_grad():
        next(guide.locs.parameters()).fill_(LOCATION)
    loss = elbo.differentiable_loss(model, guide)
    gradients = torch.autograd.grad(loss, list(guide.parameters()))
    return loss.item(), np.array([gradient.item() for gradient in gradients])


def in_numpyro(elbo, model, scale):
    guide = numpyro_moments.DVIGuide(model)
    values = {"s_auto_loc": jnp.array(LOCATION), "s_auto_scale": jnp.array(scale)}
    loss = jax.value_and_grad(lambda values: elbo.loss(jax.random.key(0), values, model, guide))
    value, gradients = by_numpy(loss)(values)
    return value.item(), np.array([gradient.item() for gradient in gradients.values()])


@pytest.mark.parametrize("scale", [10.0, 100.0])
@pytest.mark.parametrize("prior", PRIORS)
def test_losses_and_gradients_are_no_nan(host, prior, scale):
    """1/s² is beyond single precision at both widths."""
    loss, gradients = loss_and_gradients(host, site(host, prior, observed=True), scale)
    assert loss == np.inf
    assert not np.isnan(gradients).any()


LOG_DENSITIES = {  # from u, for s = exp(u) or its share
    "HalfCauchy": lambda u: np.log(2 / np.pi) - np.logaddexp(0, 2 * u) + u,
    "Beta": lambda u: np.log(6) - 2 * np.logaddexp(0, u) - 2 * np.logaddexp(0, -u),
    "Uniform": lambda u: -np.logaddexp(0, u) - np.logaddexp(0, -u),
}


@pytest.mark.parametrize("scale", [3.0, 30.0, 1000.0])
@pytest.mark.parametrize("prior", LOG_DENSITIES)
def test_divergences_that_are_finite_stay_exact(host, prior, scale):
    steps = np.linspace(-10, 10, 200_001)
    weights = stats.norm.pdf(steps) / stats.norm.pdf(steps).sum()
    energy = weights @ LOG_DENSITIES[prior](LOCATION + scale * steps)
    expected = -energy - stats.norm(0, scale).entropy()
    found = loss_and_gradients(host, site(host, prior, observed=False), scale)[0]
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_log_normal_of_random_width_has_no_variance(host):
    """E exp(exp(2h)) of a Gaussian h is infinite."""

    def model(y=None):
        f = host.language.sample("f", host.dist.Normal(host.np.zeros(2), 1.0).to_event(1))
        host.language.sample("y", host.dist.LogNormal(f[0], host.np.exp(f[1])), obs=y)

    guide, one = host.package.DVIGuide(), host.np.ones(())
    given = placed(host, model, guide, mean_field(host, f=(np.zeros(2), np.ones(2))), one)

    def variances():
        found = host.package.predict(model, guide, *given)["y"]
        return found.aleatoric_variance, found.epistemic_variance

    run = by_numpy(variances) if host.name == "numpyro" else variances
    aleatoric, epistemic = map(np.asarray, run())
    assert aleatoric == np.inf
    assert not np.isnan(epistemic)


FUNCTIONS = {
    "sum": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "whole sum": (torch.sum, jnp.sum),
    "product": (lambda x: x.prod(-1), lambda x: x.prod(-1)),
    "mean": (lambda x: x.mean(-1), lambda x: x.mean(-1)),
    "cumulative sum": (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "softmax": (lambda x: torch.softmax(x, -1), jax.nn.softmax),
    "logsumexp": (lambda x: torch.logsumexp(x, 0), partial(jax.nn.logsumexp, axis=0)),
    "chain": (lambda x: torch.exp(2 * torch.tanh(x) + 1), lambda x: jnp.exp(2 * jnp.tanh(x) + 1)),
    "gate": (lambda x: x * torch.sigmoid(x + 1), lambda x: x * jax.nn.sigmoid(x + 1)),
    "linear": (
        lambda x: x @ torch.ones(x.shape[-1], 2) + 1,
        lambda x: x @ jnp.ones((x.shape[-1], 2)) + 1,
    ),
    "columns": (lambda x: x.T @ torch.ones(len(x), 2), lambda x: x.T @ jnp.ones((len(x), 2))),
    "flip": (lambda x: x.flip(0), lambda x: x[::-1]),
    "concatenation": (lambda x: torch.cat([x, x]), lambda x: jnp.concatenate([x, x])),
    "none of some": (lambda x: x[:, :0].sum(-1), lambda x: x[:, :0].sum(-1)),
}


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_nothing(name, shape):
    hosts = (pyro_moments, torch.zeros), (numpyro_moments, jnp.zeros)
    for (host, zeros), function in zip(hosts, FUNCTIONS[name], strict=True):
        plain = function(zeros(shape))
        for spread in ({"variance": zeros(shape)}, {"covariance": zeros((*shape, shape[-1]))}):
            moments = host.propagate(function, host.Moments(zeros(shape), **spread))
            np.testing.assert_array_equal(moments.mean, plain)  # NaN for a mean over nothing
            np.testing.assert_array_equal(moments.variance, 0 * np.zeros(plain.shape))


def regression(observe, outputs):
    def model(host, x, y):
        weight = models.weights(host, "a_weight", models.INPUTS, outputs)
        scale = host.sample("b_scale", host.dist.LogNormal(0.0, 0.5))
        out = host.np.tanh(x @ weight)
        host.sample("obs", observe(host.dist, out, scale).to_event(1), obs=y)

    return model


LIKELIHOODS = {
    "Normal": (lambda d, f, s: d.Normal(f[:, 0], s), 1, float),
    "StudentT": (lambda d, f, s: d.StudentT(4.0, f[:, 0], s), 1, float),
    "Categorical": (lambda d, f, s: d.Categorical(logits=f * s, validate_args=False), 3, int),
    "Gamma": (lambda d, f, s: d.Gamma(s, 2.0 + f[:, 0]), 1, float),
}


def model_without_rows(name):
    observe, outputs, kind = LIKELIHOODS[name]
    data = {"x": np.zeros((0, models.INPUTS)), "y": np.zeros(0, dtype=kind)}
    return regression(observe, outputs), data, outputs


def parameter(name, shape):
    """Locations of 0.3 and 0.2; scales whose softplus is log 2."""
    if "scales." in name or name.endswith("_auto_scale"):
        return np.zeros(shape)
    return np.full(shape, 0.3 if "weight" in name else 0.2)


@pytest.mark.usefixtures("double_precision", "double_precision_in_jax")
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_no_rows_leave_the_divergence_alone(name):
    """The KL divergence of weights and log scale, in closed form."""
    model, data, outputs = model_without_rows(name)
    size, scale = models.INPUTS * outputs, np.log(2.0)
    ratio = scale**2 * models.INPUTS  # of the variances
    weight = 0.5 * size * (ratio + 0.3**2 * models.INPUTS - 1 - np.log(ratio))
    noise = 0.5 * ((scale**2 + 0.2**2) / 0.25 - 1 - np.log(scale**2 / 0.25))
    cell = losses.Cell(
        model, ["x", "y"], "DVIGuide", ("DeterministicELBO", {}), parameter, data, predicted=False
    )
    for numbers in (losses.in_pyro(cell), losses.in_numpyro(cell, by_numpy)):
        assert numbers["loss"] == pytest.approx(weight + noise, rel=1e-6)
        assert all(np.isfinite(np.asarray(number)).all() for number in numbers.values())


@pytest.mark.usefixtures("double_precision", "double_precision_in_jax")
@pytest.mark.parametrize("name", ["Normal", "Categorical"])
def test_no_rows_under_a_full_rank_guide(name):
    model, data, outputs = model_without_rows(name)
    parts = posterior(models.INPUTS * outputs + 1)
    values = [loss(model, KINDS[0], parts, *data.values()).item() for loss in HOSTS.values()]
    assert values[0] == pytest.approx(values[1], rel=1e-9)
