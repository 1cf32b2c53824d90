"""Rényi bounds against closed forms and the hosts' own, with and without subsamples."""

import numpy as np
import pyro.infer.autoguide
import pytest

from moment_calculus.errors import UnsupportedMoments
from tests.checks.marks import IN_PYRO
from tests.propagation.oracle import losses, near, renyi_bound

NOISE, ROWS, INPUTS, BATCH = 0.6, 6, 3, 2
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, INPUTS)) / 2
Y = X @ [0.4, -1.0, 0.7] + NOISE * rng.normal(size=ROWS)
PRECISION = X.T @ X / NOISE**2 + np.eye(INPUTS)
LOC = np.linalg.solve(PRECISION, X.T @ Y / NOISE**2) + 0.1
SCALE = np.diagonal(PRECISION) ** -0.5
SITES = {"weight": (LOC, SCALE)}
SUBSAMPLED = "plate 'data' around site 'obs' is subsampled, but not around every.*BBAlphaELBO"
ORDERS = pytest.mark.parametrize("alpha", [0.0, 0.5, 2.0])


def regression(host, size=ROWS, subsample=ROWS):
    def model(x, y):
        weight = host.weight()
        with host.language.plate("data", size, subsample_size=subsample):
            host.language.sample("obs", host.dist.Normal(x @ weight, NOISE), obs=y)

    return model


def own(host, alpha, count, **options):
    options = options if host.name == "pyro" else {}
    return host.language.infer.RenyiELBO(alpha=alpha, num_particles=count, **options)


@ORDERS
def test_many_draws_are_near_the_bound(host, alpha):
    """At α = 0 it is the log evidence."""
    bound = renyi_bound(alpha, X, Y, NOISE, LOC, np.diag(SCALE**2))
    renyi = host.package.RenyiELBO(alpha, num_particles=500)
    assert near(losses(host, renyi, regression(host), SITES, X, Y, count=100), -bound)
    if alpha == 0:
        evidence = np.linalg.slogdet(2 * np.pi * (X @ X.T + NOISE**2 * np.eye(ROWS)))[1]
        quadratic = Y @ np.linalg.solve(X @ X.T + NOISE**2 * np.eye(ROWS), Y)
        assert bound == pytest.approx(-0.5 * (evidence + quadratic), rel=1e-12)


@ORDERS
def test_few_draws_have_the_mean_of_the_hosts_own(host, alpha):
    model, count = regression(host), 100
    renyi = host.package.RenyiELBO(alpha, num_particles=3)
    ours = losses(host, renyi, model, SITES, X, Y, count=count)
    pyro.set_rng_seed(1)
    guide = host.package.DVIGuide()
    guide.bind(model)
    theirs = losses(host, own(host, alpha, 3), model, SITES, X, Y, count=count, guide=guide)
    error = np.sqrt((np.var(ours) + np.var(theirs)) / count)
    assert abs(np.mean(ours) - np.mean(theirs)) < 3 * error or np.array_equal(ours, theirs)


def local(host, size, subsample):
    """A model that lies in one plate, and its guide."""

    def plate():
        return host.language.plate("data", size, subsample_size=subsample)

    def model(y):
        with plate():
            z = host.language.sample("z", host.dist.Normal(0.0, 1.0))
            host.language.sample("obs", host.dist.Normal(z, NOISE), obs=y)

    def guide(y):
        with plate():
            host.language.sample("z", host.dist.Normal(0.5 * y, 0.6))

    return model, guide


def by_elements(alpha, y):
    one, spread = np.ones((1, 1)), [[0.36]]
    return [renyi_bound(alpha, one, part[None], NOISE, [0.5 * part], spread) for part in y]


@pytest.mark.parametrize(
    ("host", "alpha"),
    [*(("pyro", order) for order in (0.0, 0.5, 2.0)), ("numpyro", 0.5)],
    indirect=["host"],
)
def test_a_subsample_of_the_plate_around_all_scales_the_bound(host, alpha):
    """As in NumPyro; with the scale inside the power, as in Pyro, it is another value."""
    model, guide = local(host, ROWS, BATCH)
    renyi = host.package.RenyiELBO(alpha, num_particles=500)
    exact = -ROWS / BATCH * sum(by_elements(alpha, Y[:BATCH]))
    found = losses(host, renyi, model, {}, Y[:BATCH], count=100, guide=guide)
    assert near(found, exact)
    pyro.set_rng_seed(1)
    theirs = own(host, alpha, 500, vectorize_particles=True, max_plate_nesting=1)
    theirs = losses(host, theirs, model, {}, Y[:BATCH], count=100, guide=guide)
    assert near(theirs, exact) == (host.name == "numpyro")


def test_subsamples_with_global_sites_are_refused_with_a_remedy(host):
    model = regression(host, ROWS, BATCH)
    with pytest.raises(ValueError, match=SUBSAMPLED):
        losses(host, host.package.RenyiELBO(0.5), model, SITES, X[:BATCH], Y[:BATCH])


@IN_PYRO
def test_the_mini_batches_of_fit_are_subsamples(host):
    """Of a plain plate, too, which ``fit`` scales: the factor is no power of the user's."""
    renyi = host.package.RenyiELBO(0.5)
    with pytest.raises(ValueError, match=SUBSAMPLED):
        host.fit(host.regression, host.x, host.y, objective=renyi, batch_size=32, steps=1)


def test_what_has_no_density_or_no_gradient_of_its_draws_is_refused(host):
    """A point in the guide; a discrete site."""

    def discrete(*data):
        host.language.sample("z", host.dist.Bernoulli(0.5))

    guides = {
        "'weight' .* point estimate": (
            regression(host),
            host.autoguide.AutoDelta(regression(host)),
        ),
        "'z' is discrete .*Bernoulli": (discrete, discrete),
    }
    for cause, (model, guide) in guides.items():
        with pytest.raises(UnsupportedMoments, match=cause):
            losses(host, host.package.RenyiELBO(0.5), model, SITES, X, Y, guide=guide)


@pytest.mark.parametrize(
    ("alpha", "message"),
    [(1, "is the ELBO: use DeterministicELBO"), (-0.5, "alpha >= 0"), (np.inf, "alpha >= 0")],
)
def test_orders_are_checked(host, alpha, message):
    with pytest.raises(ValueError, match=message):
        host.package.RenyiELBO(alpha)
