"""The rule book vbp bounds the log-likelihood of outcomes with a probability Φ(f)."""

import jax
import jax.numpy as jnp
import jax.scipy.stats
import numpy as np
import pytest
import torch
from scipy import special, stats

from moment_calculus.likelihoods.trials import bernoulli
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.rulebooks import EXACT, propagation_of
from moment_calculus.rulebooks.vbp import VBP
from tests.cases.row_functions import ndtr
from tests.fitting.models import HOSTS, started

OUTCOMES = np.array([0.0, 1.0, 1.0, 0.0])
MEANS, SPREADS = np.array([-1.5, -0.2, 0.6, 2.0]), np.array([0.01, 0.5, 2.0, 9.0])


def expected(book, array=np.asarray):
    f = site_value("f", array(MEANS), array(SPREADS), propagation_of("diagonal", book))
    return bernoulli(array(OUTCOMES), probs=ndtr(f))


@pytest.mark.parametrize("beta", [0.1, 1.0, 4.0])
def test_it_is_the_bound_of_the_source(beta):
    """log ∫ p(t|y) exp(E log N(y; g, 1/β)) dy of margins y, g = √(1 + 1/β) f, by a sum."""
    scale = (1 + 1 / beta) ** 0.5
    y = np.linspace(-60, 60, 200_001)[:, None]
    mean, variance = scale * MEANS, scale**2 * SPREADS
    margins = stats.norm.logpdf(y, mean, beta**-0.5) - 0.5 * beta * variance
    signs = 2 * OUTCOMES - 1
    oracle = special.logsumexp(special.log_ndtr(signs * y) + margins, axis=0) + np.log(y[1] - y[0])
    for array in (np.asarray, torch.tensor, jnp.asarray):
        found = np.asarray(expected(VBP(margin_precision=beta), array))
        tolerance = 1e-5 if found.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(found, oracle, rtol=tolerance)
    assert (oracle < expected(EXACT)).all()
    assert (oracle < expected(VBP(margin_precision=0.0))).all()
    assert (expected(VBP(margin_precision=0.0)) < expected(EXACT)).all()


@pytest.mark.parametrize("name", HOSTS)
def test_labels_in_a_model(name):
    """Two labels a row: the likelihood of the model is the sum of the bounds."""
    host = HOSTS[name]
    normal = torch.special.ndtr if name == "pyro" else jax.scipy.stats.norm.cdf

    def model(x, y):
        prior = host.dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2)
        weight = host.language.sample("weight", prior)
        with host.language.plate("rows", len(x)):
            outcomes = host.dist.Bernoulli(probs=normal(x @ weight)).to_event(1)
            host.language.sample("obs", outcomes, obs=y)

    x, y = host.array([[1.0], [-2.0]]), host.array([[0.0, 1.0], [1.0, 1.0]])
    guide = host.package.DVIGuide(init_scale=0.5)
    params = started(host, model, guide, x, y)
    found = {}
    for rules in ("vbp", "exact"):
        elbo = host.package.DeterministicELBO(rules=rules)
        if name == "pyro":
            found[rules] = elbo.loss(model, guide, x, y)
        else:
            found[rules] = float(elbo.loss(jax.random.key(0), *params, model, guide, x, y))
    mean = guide.get_posterior(*params)["weight"].mean
    mean = np.asarray(mean.detach() if name == "pyro" else mean)
    f, v = np.asarray(x) @ mean, 0.25 * np.asarray(x) ** 2 * np.ones((2, 2))
    bound = special.log_ndtr((2 * np.asarray(y) - 1) * f) - v
    kl = 0.5 * (0.25 + mean**2 - 1 - np.log(0.25)).sum()
    assert found["vbp"] == pytest.approx(kl - bound.sum(), rel=1e-5)
    assert found["vbp"] > found["exact"]
