"""Every likelihood against quadrature over its own density, as the host evaluates it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_moments.likelihoods.expected import evaluate, predictive
from tests.checks.jaxprs import by_numpy
from tests.numpyro.likelihoods.cases import CASES, MEAN, VARIANCE, distribution, latent
from tests.oracles import quadrature as oracles

# One for every way in which a gradient flows; their gradients, and those of the oracle.
DIFFERENTIATED = [
    "Normal, nonlinear",
    "StudentT, both",
    "Gamma, both",
    "NegativeBinomial, probs",
    "ZeroInflatedPoisson",
    "OrderedLogistic",
    "Beta",
    "truncated Normal",
]


pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")


def averaged(function, mean, variance):
    """E[function(f)] by narrow panels."""
    z, weights = oracles.narrow_grid(1, 1)
    values = jax.vmap(function)(mean + jnp.sqrt(variance) * z)
    return jnp.tensordot(weights, values, 1)


def close(actual, expected, rtol=1e-6, atol=1e-9, message=""):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=message)


def expected(name, mean, variance):
    make, value = CASES[name]
    return evaluate("obs", distribution(make, latent("f", mean, variance)), value)


def oracle(name, mean, variance):
    make, value = CASES[name]
    return averaged(lambda f: make(f).log_prob(value), mean, variance)


def agree(ours, oracle, names, differentiated):
    """Values, and gradients of some of them by mean and variance, in one program for all names."""
    gradient = lambda f, name: jax.grad(lambda *moments: f(name, *moments).sum(), (0, 1))  # noqa: E731

    @by_numpy
    def both(*moments):
        values = {name: (ours(name, *moments), oracle(name, *moments)) for name in names}
        slopes = {n: [gradient(f, n)(*moments) for f in (ours, oracle)] for n in differentiated}
        return values, slopes

    values, slopes = both(MEAN, VARIANCE)
    for name, pair in values.items():
        close(*pair, message=name)
    for name, pair in slopes.items():
        close(*pair, rtol=2e-5, message=name)


# Of Pyro's densities all are integrated; here one for every way to them.
FEW = [
    "Normal, nonlinear",
    "StudentT, both",
    "Gamma, log link",
    "Bernoulli, sigmoid",
    "Binomial, probs",
    "Poisson, exp",
    "NegativeBinomial2",
    "OrderedLogistic",
    "Beta",
    "HurdlePoisson",
    "truncated Normal",
    "mixture of Normals",
]


@pytest.mark.parametrize(
    ("names", "differentiated"),
    [(FEW, ["StudentT, both", "Beta"]), ([*CASES], DIFFERENTIATED)],
    ids=["few", "all"],
)
def test_expected_log_densities_and_their_gradients(names, differentiated):
    agree(expected, oracle, names, differentiated)


PREDICTED = [
    "Normal, nonlinear",
    "StudentT, both",
    "NegativeBinomial2",
    "ZeroInflatedPoisson, both",
    "Beta",
]


@pytest.mark.parametrize("names", [PREDICTED[:2], PREDICTED], ids=["few", "all"])
def test_predictive_moments_and_densities(names):
    def both(name, mean, variance):
        make, value = CASES[name]
        *moments, log_prob = predictive("obs", distribution(make, latent("f", mean, variance)))
        density = averaged(lambda f: jnp.exp(make(f).log_prob(value)), mean, variance)
        centre = averaged(lambda f: make(f).mean, mean, variance)
        spread = averaged(lambda f: (make(f).mean - centre) ** 2, mean, variance)
        noise = averaged(lambda f: make(f).variance, mean, variance)
        return (*moments, log_prob(value)), (centre, spread, noise, jnp.log(density))

    program = by_numpy(lambda *moments: {name: both(name, *moments) for name in names})
    for name, pair in program(MEAN, VARIANCE).items():
        close(*pair, message=name)


def test_single_precision_stays_close_to_double():
    """Without x64 the nodes are single, too; the docstring of ``expected`` has the figure."""
    names = "Gumbel", "ZeroInflatedPoisson", "Beta", "truncated Normal"

    @by_numpy
    def densities(*moments):
        return [expected(name, *moments) for name in names]

    double = densities(MEAN, VARIANCE)
    with jax.enable_x64(False):
        moments = MEAN.copy(), VARIANCE.copy()  # of which JAX does not know a precision yet
        for found, exact in zip(densities(*moments), double, strict=True):
            assert found.dtype == jnp.float32
            close(found, exact, rtol=1e-5, atol=1e-6)


def test_a_batch_by_vmap():
    make, value = CASES["Poisson, exp"]
    means = MEAN + np.arange(2.0)[:, None]

    def one(mean):
        return evaluate("obs", distribution(make, latent("f", mean)), value)

    single = by_numpy(one)
    close(by_numpy(jax.vmap(one))(means), [single(mean) for mean in means])
