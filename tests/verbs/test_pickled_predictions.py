"""Predictions pickle, are copied and go to other processes, with all that they answer."""

import copy
import multiprocessing
import pickle
from functools import partial

import jax
import numpy as np
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import to_numpy
from tests.dropout.test_likelihoods import model as with_dropout
from tests.fitting.models import HOSTS, fresh, started
from tests.response.models import doubles
from tests.verbs.elsewhere import quantile

ROWS = 2
QUICK = "moments", "std", "log_prob", "cdf", "probs", "draws"
COPIED = "moments", "log_prob", "draws"
POSITIVE = np.array([1.0, 2.0])
COUNTS = np.array([1.0, 0.0])


def exp(host, value):
    return host.np.exp(value)


# From a host and outputs [rows, 3] to a distribution, and observations.
LIKELIHOODS = {
    "Normal": (lambda host, f: host.dist.Normal(f[:, 0], 0.6), POSITIVE),
    "Normal, random scale": (
        lambda host, f: host.dist.Normal(f[:, 0], exp(host, 0.3 * f[:, 1] - 1.0)),
        POSITIVE,
    ),
    "Normal, one Gaussian": (
        lambda host, f: host.dist.Normal(f[:, 0], exp(host, 0.2 * f[:, 0] + 0.1)),
        POSITIVE,
    ),
    "LogNormal": (lambda host, f: host.dist.LogNormal(f[:, 0], 0.4), POSITIVE),
    "StudentT": (lambda host, f: host.dist.StudentT(4.0, f[:, 0], 0.5), POSITIVE),
    "Bernoulli": (lambda host, f: host.dist.Bernoulli(logits=f[:, 0]), 1.0 * (COUNTS > 0)),
    "Categorical": (lambda host, f: host.dist.Categorical(logits=f), np.array([0, 2])),
    "Poisson": (lambda host, f: host.dist.Poisson(exp(host, 0.5 * f[:, 0])), COUNTS),
    "Poisson, a product": (
        lambda host, f: host.dist.Poisson(2.0 * (softplus(host, f[:, 0]) * own_rate(host))),
        COUNTS,
    ),
    "Gamma": (lambda host, f: host.dist.Gamma(2.0, exp(host, 0.3 * f[:, 0])), POSITIVE),
    "Beta": (
        lambda host, f: host.dist.Beta(exp(host, 0.3 * f[:, 0]), exp(host, 0.3 * f[:, 1])),
        np.array([0.2, 0.5]),
    ),
    "MultivariateNormal": (
        lambda host, f: host.dist.MultivariateNormal(
            f, covariance_matrix=host.np.eye(3, dtype=f.dtype)
        ),
        np.ones((ROWS, 3)),
    ),
    "an event": (lambda host, f: host.dist.Normal(f, 0.5).to_event(1), np.ones((ROWS, 3))),
}
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, 2))


def softplus(host, value):
    function = torch.nn.functional.softplus if host.name == "pyro" else jax.nn.softplus
    return function(value)


def own_rate(host):
    """A positive latent site of every row."""
    return exp(host, host.language.sample("rate", host.dist.Normal(0.0, host.array(0.5))))


def model_of(host, likelihood, width=3):
    def model(x, y=None):
        prior = host.dist.Normal(host.np.zeros((2, width)), 1.0).to_event(2)
        outputs = x @ host.language.sample("weight", prior)
        with host.language.plate("rows", len(x)):
            host.language.sample("y", likelihood(host, outputs), obs=y)

    return model


def predicted(host, likelihood, y, x=X, width=3, **options):
    fresh(host.name)
    guide, x = (
        host.package.DVIGuide(init_scale=0.3),
        host.array(x) if isinstance(x, np.ndarray) else x,
    )
    model = model_of(host, likelihood, width)
    params = started(host, model, guide, x, y)
    return host.package.predict(model, guide, *params, x, **options)["y"]


def draws(site, name):
    if name == "numpyro":
        return site.sample(3, jax.random.key(0))
    torch.manual_seed(0)
    return site.sample(3)


def answers(host, site, y, names=None):
    """All that a prediction answers, or what is named; a refusal is an answer."""
    asked = {
        "moments": lambda: [site.mean, site.epistemic_variance, site.aleatoric_variance],
        "std": lambda: site.std,
        "log_prob": lambda: site.log_prob(y),
        "cdf": lambda: site.cdf(0.4),
        "quantile": lambda: site.quantile([0.1, 0.7]),
        "interval": lambda: site.interval(0.9)[0],
        "credible_interval": lambda: site.credible_interval(0.5)[1],
        "probs": lambda: site.probs,
        "entropy": lambda: site.entropy,
        "mutual_information": lambda: site.mutual_information,
        "variation_ratio": lambda: site.variation_ratio,
        "draws": lambda: draws(site, host.name),
        "to_dataframe": lambda: site.to_dataframe().to_numpy(),
        "calibration": lambda: host.package.calibration(site, y).log_score,
    }
    everything = QUICK if host.name == "numpyro" else asked  # where others take long to compile
    names = names or everything
    return {name: answer(asked[name]) for name in names}


def answer(ask):
    try:
        found = ask()
    except (UnsupportedMoments, ValueError) as error:
        return str(error)
    return [to_numpy(part) for part in (found if isinstance(found, list) else [found])]


def assert_equal(found, expected):
    for name, known in expected.items():
        if isinstance(known, str):
            assert found[name] == known
        else:
            assert [part.dtype for part in found[name]] == [part.dtype for part in known], name
            for pair in zip(found[name], known, strict=True):
                np.testing.assert_allclose(*pair, rtol=1e-12, atol=1e-12, err_msg=name)


def check(host, likelihood):
    make, y = LIKELIHOODS[likelihood]
    y = host.array(y)
    site = predicted(host, make, y)
    expected = answers(host, site, y)
    assert sum(isinstance(part, list) for part in expected.values()) >= 4
    again, copied = pickle.loads(pickle.dumps(site)), copy.deepcopy(site)
    assert type(again) is type(copied) is type(site)
    assert_equal(answers(host, again, y), expected)
    # A copy is made of what is pickled: it has the same distribution, or it has not.
    assert_equal(answers(host, copied, y, COPIED), {name: expected[name] for name in COPIED})


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_prediction_answers_the_same_after_a_round_trip(host, likelihood):
    with doubles(host):
        check(host, likelihood)


def wide(host, **options):
    """A prediction of 100 rows by 2 x 4000 weights."""
    make, width, rows = LIKELIHOODS["Normal"][0], 4000, 100
    y, x = host.array(np.zeros(rows, np.float32)), np.ones((rows, 2), np.float32)
    return predicted(host, make, y, x, width, **options)


def test_the_size_is_that_of_the_outputs(host):
    site = wide(host)
    assert len(pickle.dumps(site)) < 100 * 4 * 4 + 6000  # weights alone would take 64 000
    cut = wide(host, batch_size=50)
    again = pickle.loads(pickle.dumps(cut))
    assert (type(again), len(pickle.dumps(cut)) < 15000) == (type(cut), True)
    for part in (again, copy.deepcopy(again)):
        found, expected = (to_numpy(each.log_prob(each.mean)) for each in (part, site))
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_particles_and_moments_pickle(host):
    y, key = host.array(np.zeros(ROWS, np.float32)), {"rng_key": jax.random.key(0)}
    options = {"num_particles": 5, **(key if host.name == "numpyro" else {})}
    x = X.astype(np.float32)
    site = predicted(host, LIKELIHOODS["Normal"][0], y, x, propagation="sampled", **options)
    again = pickle.loads(pickle.dumps(site))
    for ask in (lambda s: s.variance, lambda s: s.quantile(0.3), lambda s: s.log_prob(y)):
        np.testing.assert_array_equal(to_numpy(ask(again)), to_numpy(ask(site)))
    moments = host.package.propagate(lambda x: 2.0 * x, host.package.Moments(y, variance=y + 1.0))
    copied = copy.deepcopy(moments)
    np.testing.assert_array_equal(to_numpy(copied.variance), to_numpy(moments.variance))
    with pytest.raises(UnsupportedMoments, match="no longer knows the sources"):
        copied.attribution()


def test_gradients_are_left_behind():
    host = HOSTS["pyro"]
    y, x = host.array(np.zeros(ROWS, np.float32)), torch.tensor(X, dtype=torch.float32)
    fresh("pyro")
    site = predicted(host, LIKELIHOODS["Normal, one Gaussian"][0], y, x.requires_grad_())
    again = copy.deepcopy(site)
    assert (site.mean.requires_grad, again.variance.requires_grad) == (True, False)
    assert torch.equal(again.log_prob(y), site.log_prob(y).detach())
    with pytest.raises(UnsupportedMoments, match="no longer knows the sources"):
        again.attribution()


def test_another_process_reads_predictions(host):
    """Which imports the package on its own: what it is asked imports none."""
    make, y = LIKELIHOODS["Normal"]
    site = predicted(host, make, host.array(y.astype(np.float32)), X.astype(np.float32))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(quantile, [site])
    np.testing.assert_array_equal(found[0], quantile(site))


def test_what_cannot_be_stored_says_why():
    """A mask straight before the likelihood makes its parameter no Gaussian."""
    host = fresh("pyro")

    def guide():
        posterior = host.dist.Normal(host.array([0.1, 0.2]), host.array([0.3, 0.4]))
        host.language.sample("w", posterior.to_event(1))

    site = host.package.predict(partial(with_dropout, host, "Normal, location"), guide)["obs"]
    with pytest.raises(UnsupportedMoments, match=r"'obs' does not pickle.*straight from dropout"):
        pickle.dumps(site)
