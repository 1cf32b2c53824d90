"""Likelihoods whose parameters come straight from dropout, in both hosts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import torch
import torch.nn.functional as F

from moment_calculus.errors import ApproximationWarning, UnsupportedMoments
from numpyro_moments.objectives.elbo import elbo_terms
from numpyro_moments.sites.traces import moment_traces
from tests.checks.jaxprs import by_numpy
from tests.fitting.models import HOSTS

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")
P, K, DRAWS = 0.3, 0.7, 200_000
X, Y = np.linspace(-1.0, 1.0, 4), np.array([1.0, 0.0, 2.0, 1.0])
MEAN, SCALE = np.array([0.7, -0.3]), np.array([0.4, 0.3])

FAMILIES = {
    "Bernoulli": lambda host, h: host.dist.Bernoulli(logits=h),
    "Poisson": lambda host, h: host.dist.Poisson(host.np.exp(h)),
    "Normal, location": lambda host, h: host.dist.Normal(h, 0.5),
    "Normal, function": lambda host, h: host.dist.Normal(host.np.tanh(h), 0.5),
    "Normal, scale": lambda host, h: host.dist.Normal(0.3, host.np.exp(h)),
    "Normal, both": lambda host, h: host.dist.Normal(host.np.tanh(h), host.np.exp(h)),
    "Laplace": lambda host, h: host.dist.Laplace(h, 0.5),
    "Gamma": lambda host, h: host.dist.Gamma(2.0, host.np.exp(h)),
    "Binomial": lambda host, h: host.dist.Binomial(4, logits=h),
}


def dropout(host, h):
    if host.name == "pyro":
        return F.dropout(h, P)
    kept = jax.random.bernoulli(numpyro.prng_key(), K, h.shape)
    return jnp.where(kept, h / K, 0)


def observed(name):
    return np.minimum(Y, 1) if name == "Bernoulli" else Y + (name == "Gamma")


def model(host, name, family=None):
    """A regression of which the predictor is dropped; another family takes the predictor, too."""
    w = host.language.sample("w", host.dist.Normal(host.np.zeros(2), 1.0).to_event(1))
    h = w[0] + w[1] * host.np.asarray(X)
    with host.language.plate("data", len(X)):
        dropped = dropout(host, h)
        fn = family(host, dropped, h) if family else FAMILIES[name](host, dropped)
        host.language.sample("obs", fn, obs=host.np.asarray(observed(name)))


def evaluated(host, program):
    """The term of the observations and their mean."""
    objective = host.package.DeterministicELBO()

    def guide():
        posterior = host.dist.Normal(host.array(MEAN), host.array(SCALE))
        host.language.sample("w", posterior.to_event(1))

    def in_numpyro():
        flow = objective.propagation
        traces = moment_traces(program, guide, (), {}, {}, jax.random.key(0), flow)
        with host.handlers.seed(rng_seed=0):
            term = elbo_terms(traces)["obs"]
        return term, host.package.predict(program, guide, {})["obs"].mean

    if host.name == "numpyro":
        return map(np.asarray, by_numpy(in_numpyro)())
    term = objective.site_terms(program, guide)["obs"]
    return float(term), host.package.predict(program, guide)["obs"].mean.numpy()


@pytest.mark.parametrize("name", FAMILIES)
def test_expected_log_likelihood(host, name):
    """Within 4.5 standard errors of draws, of weights and masks."""
    term, mean = evaluated(host, partial(model, host, name))
    generator = torch.Generator().manual_seed(0)
    z = torch.randn((DRAWS, 2), generator=generator, dtype=torch.float64)
    w = torch.as_tensor(MEAN) + torch.as_tensor(SCALE) * z
    kept = torch.rand((DRAWS, len(X)), generator=generator, dtype=torch.float64) < K
    h = kept * (w[:, :1] + w[:, 1:] * torch.as_tensor(X)) / K
    fn = FAMILIES[name](HOSTS["pyro"], h)
    terms = fn.log_prob(torch.as_tensor(observed(name))).sum(-1)
    assert abs(term - float(terms.mean())) < 4.5 * float(terms.std()) / DRAWS**0.5
    error = fn.mean.expand(h.shape).std(0).numpy() / DRAWS**0.5
    assert (abs(mean - fn.mean.expand(h.shape).mean(0).numpy()) <= 4.5 * error + 1e-9).all()


def beside_another(host, dropped, h):
    return host.dist.Laplace(h, host.np.exp(dropped))


def test_another_random_parameter_is_refused(host):
    with pytest.raises(UnsupportedMoments, match="straight from dropout") as raised:
        evaluated(host, partial(model, host, "Laplace", beside_another))
    assert "linear map between dropout" in raised.value.remedy


def classes(host):
    w = host.language.sample("w", host.dist.Normal(host.np.zeros(2), 1.0).to_event(1))
    logits = dropout(host, host.np.asarray(X)[:, None] * w)
    with host.language.plate("data", len(X)):
        host.language.sample(
            "obs", host.dist.Categorical(logits=logits), obs=host.np.asarray([0, 1, 1, 0])
        )


def test_classes_warn(host):
    """Their logits are taken as Gaussian, for the loss and for predictions."""
    with pytest.warns(ApproximationWarning) as found:
        evaluated(host, partial(classes, host))
    texts = [str(warning.message) for warning in found]
    assert any(text.startswith("a likelihood of classes of values straight") for text in texts)
    assert any(text.startswith("the probability of classes of values straight") for text in texts)
