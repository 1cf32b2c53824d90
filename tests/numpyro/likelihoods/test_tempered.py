"""Means of powers of likelihoods against quadrature over the density, as NumPyro evaluates it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from numpyro_moments.evaluation.interpreter import Interpreter
from numpyro_moments.likelihoods.expected import evaluate, tempered, tempered_jointly
from numpyro_moments.likelihoods.structure import stripped
from pyro_moments.likelihoods.expected import tempered_jointly as jointly_in_torch
from tests.cases.hosts.tempered import DEVIATIONS, MEANS, data
from tests.checks.jaxprs import by_numpy
from tests.numpyro.likelihoods.cases import CASES, MEAN, VARIANCE, distribution, latent
from tests.numpyro.likelihoods.test_likelihoods import agree, averaged, close
from tests.pyro.likelihoods.test_tempered import DATA as DATA_IN_TORCH
from tests.pyro.likelihoods.test_tempered import site as site_in_torch

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

# Every way to the host's densities; Pyro's tests have all rules.
NAMES = [
    "Normal, nonlinear",
    "Bernoulli, sigmoid",
    "Binomial, probs",
    "Poisson, softplus",
    "OrderedLogistic",
    "transformed",
    "NegativeBinomial, probs",
    "Beta",
    "truncated Normal",
]


def found(name, mean, variance):
    """At a power of ½."""
    make, value = CASES[name]
    return tempered("obs", distribution(make, latent("f", mean, variance)), value, 0.5)


def oracle(name, mean, variance):
    make, value = CASES[name]
    powers = averaged(lambda f: jnp.exp(0.5 * make(f).log_prob(value)), mean, variance)
    return 2 * jnp.log(powers)


@pytest.mark.parametrize(
    ("names", "differentiated"),
    [(NAMES[1::3], ["Beta"]), (NAMES, ["Poisson, softplus", "Beta"])],
    ids=["few", "all"],
)
def test_means_of_powers_and_their_gradients(names, differentiated):
    agree(found, oracle, names, differentiated)


def sites_of(row, moments):
    """The sites of a datum with the moments of their parameters."""
    values = [
        latent(name, *moments[name], event_dim=2 if name == "w" else 0) for name in row.latent
    ]
    shapes = [jax.ShapeDtypeStruct(value.shape, value.mean.dtype) for value in values]

    def program(*arrays):
        return [stripped(fn) for fn, _, _ in row.sites(*arrays)]

    jaxpr, tree = jax.make_jaxpr(program, return_shape=True)(*shapes)
    fns = jax.tree.unflatten(jax.tree.structure(tree), Interpreter().run_closed(jaxpr, values))
    rest = [parts[1:] for parts in row.sites(*(jnp.zeros(value.shape) for value in values))]
    return [("y", fn, *parts) for fn, parts in zip(fns, rest, strict=True)]


POWERS = (0.0, 1e-6, 0.5)


def test_data_of_several_observations_agree_with_the_pyro_front_end():
    rows = data(dist, jnp.asarray)

    def ours(moments):
        sites = {name: sites_of(rows[name], moments) for name in DATA_IN_TORCH}
        return {n: [tempered_jointly(s, p, rows[n].axes) for p in POWERS] for n, s in sites.items()}

    moments = {name: (mean, DEVIATIONS[name] ** 2) for name, mean in MEANS.items()}
    for name, found in by_numpy(ours)(moments).items():
        other = DATA_IN_TORCH[name]
        theirs = [("y", *parts) for parts in other.sites(*map(site_in_torch, other.latent))]
        expected = [jointly_in_torch(theirs, power, other.axes).numpy() for power in POWERS]
        close(found, expected, rtol=1e-10, atol=1e-12, message=name)


def test_certain_sites_have_the_hosts_density():
    fn, value = dist.Gamma(jnp.array([1.0, 2.0]), 3.0), jnp.array([0.4, 0.2])
    for alpha in (0.0, 0.3, 1.0):
        close(tempered("y", fn, value, alpha), fn.log_prob(value))
    empty = distribution(lambda f: dist.Normal(f[:0], 1.0), latent())
    assert tempered("y", empty, jnp.zeros(0), 0.5).shape == (0,)


def test_masks_exclude_what_is_missing():
    """Their observations may be NaN, or outside the support; gradients stay finite."""
    mask, rate = jnp.array([True, False, True]), np.array([3.0, np.nan, 1.0])

    def terms(mean, value, around=lambda fn: fn.mask(mask)):
        fn = distribution(lambda f: around(dist.Poisson(jnp.exp(f))), latent("f", mean))
        return tempered("y", fn, value, 0.5)

    @by_numpy
    def found(mean, value):
        masked, back = jax.vjp(lambda mean: terms(mean, rate), mean)
        plain, none = (
            terms(mean, value, lambda fn: fn),
            terms(mean, rate, lambda fn: fn.mask(False)),
        )
        return masked, plain, none, *back(jnp.ones(3))

    masked, plain, none, gradient = found(MEAN, np.array([3.0, 0.0, 1.0]))
    close(masked, plain * mask)
    close(none, jnp.zeros(3))
    assert jnp.isfinite(gradient).all()


def test_observations_outside_the_support_have_no_density():
    fn = distribution(lambda f: dist.Poisson(jnp.exp(f), validate_args=True), latent())
    with pytest.warns(UserWarning, match="support"):
        found = tempered("y", fn, np.array([1.0, -1.0, 2.0]), 0.5)
    np.testing.assert_array_equal(jnp.isfinite(found), [True, False, True])


def test_low_rank_vectors_are_those_of_their_covariance():
    factor, noise = jnp.array([[0.4], [0.9], [-0.3]]), jnp.array([0.5, 0.3, 0.8])

    @by_numpy
    def both(mean, factor):
        f, value = latent("f", mean, event_dim=1), np.array([0.4, 0.1, -0.7])
        full = factor @ factor.T + jnp.diag(noise)
        low = distribution(lambda f: dist.LowRankMultivariateNormal(f, factor, noise), f)
        whole = distribution(lambda f: dist.MultivariateNormal(f, full), f)
        return tempered("y", low, value, 0.5), tempered("y", whole, value, 0.5)

    close(*both(MEAN, factor))


@pytest.mark.parametrize("name", ["Normal, nonlinear", "Poisson, exp"])
def test_small_powers_without_double_precision(name):
    make, value = CASES[name]

    @by_numpy
    def both(*moments):
        fn = distribution(make, latent("f", *moments))
        return tempered("obs", fn, np.float32(value), 1e-6), evaluate("obs", fn, value)

    with jax.enable_x64(False):
        ours, expected = both(np.float32(MEAN), np.float32(VARIANCE))
    assert ours.dtype == np.float32
    close(ours, expected, rtol=1e-4)
