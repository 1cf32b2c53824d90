"""Terms that a rule book adds to the ELBO: the expected KL of the gates of vbp."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as numpyro_dist
import pyro
import pyro.distributions as pyro_dist
import pytest
import torch

import numpyro_moments
import pyro_moments
from moment_calculus.functions.families.relu import ReLU
from moment_calculus.rulebooks.vbp import VBP

X = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
Y = X[:, 0] - X[:, 1]


def network(language, dist, relu):
    def model(x, y=None):
        w = language.sample("w", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        u = language.sample("u", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with language.plate("data", 6, subsample_size=len(x)):
            hidden = relu(x @ w)
            language.sample("y", dist.Normal(hidden @ u, 0.5), obs=y)

    return model


def of_pyro(rows, book):
    """The terms at the start of a guide, the loss, and mean and variance of w."""
    model = network(pyro, pyro_dist, torch.relu)
    pyro.set_rng_seed(0)
    x, y = torch.tensor(X[:rows]), torch.tensor(Y[:rows])
    guide = pyro_moments.DVIGuide(model, init_scale=0.5)
    guide(x, y)
    elbo = pyro_moments.DeterministicELBO(rules=book)
    loc, scale = guide.locs.w.detach().numpy(), guide.scales.w.detach().numpy()
    return elbo.site_terms(model, guide, x, y), elbo.loss(model, guide, x, y), loc, scale**2


def of_numpyro(rows, book):
    model = network(numpyro, numpyro_dist, jax.nn.relu)
    x, y = jnp.asarray(X[:rows]), jnp.asarray(Y[:rows])
    guide = numpyro_moments.DVIGuide(model, init_scale=0.5)
    elbo = numpyro_moments.DeterministicELBO(rules=book, sum_sites=False)
    svi = numpyro_moments.SVI(model, guide, numpyro.optim.Adam(0.1), elbo)
    params = svi.get_params(svi.init(jax.random.PRNGKey(0), x, y))
    losses = elbo.loss(jax.random.PRNGKey(1), params, model, guide, x, y)
    terms = {name: -float(loss) for name, loss in losses.items()}
    loc, scale = (np.asarray(params[f"w_auto_{part}"]) for part in ("loc", "scale"))
    return terms, -sum(terms.values()), loc, scale**2


@pytest.mark.parametrize("rows", [6, 2])
@pytest.mark.parametrize("host", [of_pyro, of_numpyro], ids=["pyro", "numpyro"])
def test_the_expected_kl_is_a_term_of_the_line_scaled_by_the_plate(host, rows):
    terms, loss, loc, variance = host(rows, VBP(expected_kl=True))
    plain, loss_without, *_ = host(rows, VBP())
    mean, spread = X[:rows] @ loc, X[:rows] ** 2 @ variance
    gates = 100.0 * (ReLU().expectation(mean, spread) - np.maximum(mean, 0.0))
    expected = 6 / rows * gates.sum()
    (name,) = terms.keys() - plain.keys()
    assert name.startswith("relu at test_terms.py:")
    assert terms[name] == pytest.approx(-expected, rel=1e-4)
    assert loss - loss_without == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("expected_kl", [True, False])
def test_classes_and_functions_of_the_last_layer_have_terms(expected_kl):
    """Of likelihoods whose parameters are no Gaussians: a log-softmax, a relu, a number."""

    def model(x):
        w = pyro.sample("w", pyro_dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        with pyro.plate("data", len(x)):
            logits = torch.relu(x @ w)
            pyro.sample("class", pyro_dist.Categorical(logits=logits), obs=torch.ones(len(x)))
            rate = torch.relu(x @ w[:, 0])
            pyro.sample("y", pyro_dist.Normal(rate, 1.0), obs=torch.ones(len(x)))
            pyro.sample("z", pyro_dist.Normal(0.0, 1.0), obs=torch.ones(len(x)))

    x = torch.tensor(X)
    guide = pyro_moments.DVIGuide(model)
    guide(x)
    elbo = pyro_moments.DeterministicELBO(rules=VBP(expected_kl=expected_kl))
    found = {name.partition(" ")[0] for name in elbo.site_terms(model, guide, x)}
    assert found == {"w", "class", "y", "z"} | ({"relu"} if expected_kl else set())
    lines = [name for name in elbo.site_terms(model, guide, x) if name.startswith("relu")]
    assert len(lines) == 2 * expected_kl


def test_a_compiled_loss_has_the_terms():
    model = network(pyro, pyro_dist, torch.relu)
    x, y = torch.tensor(X), torch.tensor(Y)
    guide = pyro_moments.DVIGuide(model, init_scale=0.5)
    guide(x, y)
    losses = [
        pyro_moments.DeterministicELBO(rules=VBP(expected_kl=True), compiled=c).loss(
            model, guide, x, y
        )
        for c in (False, True)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_terms_are_refused_where_no_elbo_takes_them():
    for package in (pyro_moments, numpyro_moments):
        with pytest.raises(ValueError, match="'vbp' adds terms to the ELBO"):
            package.BBAlphaELBO(alpha=0.5, rules=VBP(expected_kl=True))
        with pytest.raises(ValueError, match="'vbp' adds terms to the ELBO"):
            package.DeterministicELBO(propagation="sampled", rules=VBP(expected_kl=True))
